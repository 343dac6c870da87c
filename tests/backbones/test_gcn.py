"""GCN and dropped edges against dense float64 forms, and laws of all graph networks.

GCN, GCNII and JKNet against torch-geometric: test_convolutions_parity.py.
"""

from functools import partial

import pytest
import torch
from small_gcn import CLASSES, KINDS, N, graph, network
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context, Inside
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.lab.backbones import sparse
from oversmoothing.lab.backbones.engine import Engine, _Times, relu_dropout, times
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.per_seed import Seeds, of_seeds
from oversmoothing.lab.backbones.sparse import Adjacency, SparseMatrix

every_kind = pytest.mark.parametrize("kind", KINDS)
STACKS = {
    "vanilla": [],
    "centered+layernorm": [Centered, LayerNorm],
    "pairnorm": [PairNorm],
    "contranorm+layernorm": [ContraNorm, LayerNorm],
}


def dense(weights: Tensor | None = None) -> Tensor:
    """D⁻¹(A + I) in float64."""
    _, edges = graph()
    a = torch.eye(N, dtype=torch.float64)
    a[edges[0], edges[1]] += 1 if weights is None else weights.double()
    return a / a.sum(dim=1, keepdim=True)


def dense_gcn(model: GCN, gamma: float, norm: bool) -> Tensor:
    """h ← relu(LN((Ã + γ 11ᵀ/n) h W + b)) in float64 with the explicit matrix, seed 0."""
    a, h = dense() + gamma / N, graph()[0].double()
    for layer, (w, b) in enumerate(zip(model.weights, model.biases)):
        h = a @ h @ w[0].double() + b[0].double()
        if layer < len(model.weights) - 1:
            h = (nn.functional.layer_norm(h, h.shape[-1:]) if norm else h).relu()
    return h


@pytest.mark.parametrize("depth", [1, 6])
@pytest.mark.parametrize("gamma", [-1.0, 0.0])
def test_gcn_equals_the_dense_matrix_in_float64(depth: int, gamma: float) -> None:
    model = network("gcn", partial(Centered, gamma), LayerNorm, depth=depth).eval()
    assert torch.allclose(model()[0].double(), dense_gcn(model, gamma, True), atol=1e-5)


@every_kind
def test_renaming_the_nodes_renames_the_logits(kind: str) -> None:
    x, edges = graph()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    moved = torch.empty_like(x).index_copy_(0, order, x).to_sparse_csr()
    stack = [Centered, partial(ContraNorm, scale=0.5), LayerNorm]
    plain = network(kind, *stack, depth=4).eval()
    renamed = KINDS[kind](stack, moved, order[edges], CLASSES, [0], depth=4).eval()
    assert torch.allclose(renamed()[0, order], plain()[0], atol=1e-5)


def trained(model: Engine) -> Engine:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model().logsumexp(dim=-1).mean(dim=1).sum().backward()
        optimizer.step()
    return model


@pytest.mark.parametrize(
    ("kind", "stack"),
    [("gcn", stack) for stack in STACKS] + [(kind, "centered+layernorm") for kind in KINDS],
)
def test_a_batch_of_seeds_equals_single_networks(kind: str, stack: str, double: None) -> None:
    """Dropout and dropped edges, five steps of Adam: every seed ends with the weights it has alone.

    In float64: Adam divides gradients by their size, so rounding of the smallest ones shows.
    """
    seeds = (3, 7, 1)
    together = trained(network(kind, *STACKS[stack], seeds=seeds, depth=3))
    for index, seed in enumerate(seeds):
        alone = trained(network(kind, *STACKS[stack], seeds=(seed,), depth=3))
        singles = alone.state_dict()
        for name, ours in together.named_parameters():
            if name in singles and ".copies." not in name:
                assert torch.allclose(ours[index], singles[name][0], rtol=0, atol=1e-9), name


class ByRowSum(Inside):
    """A method that scales by the row sums of M and has a parameter."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(dim))

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        assert context.row_sum.shape == (mixed.shape[-2], 1)
        return context.row_sum * self.factor * mixed


def test_a_method_with_parameters_gets_the_row_sums_of_its_own_seed() -> None:
    """With dropped edges, after which every seed has other row sums."""
    logits = [network("symmetric", ByRowSum, seeds=s, depth=3)() for s in ((3, 7), (3,), (7,))]
    assert torch.allclose(logits[0], torch.cat(logits[1:]), atol=1e-6)


def test_seeds_differ_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    model = network(seeds=(0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert not torch.allclose(model.weights[0][0], model.weights[0][1])


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    ("kind", "stack"),
    [("gcn", stack) for stack in STACKS] + [(kind, "centered+layernorm") for kind in KINDS],
)
def test_gradient_reaches_every_parameter(kind: str, stack: str, share: bool) -> None:
    options = {"seeds": (0, 1), "depth": 4, "share_aggregators": share, "dropout": 0.1}
    model = network(kind, *STACKS[stack], **options)
    model().logsumexp(dim=-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        per_seed = parameter.grad.flatten(1) if parameter.shape[0] == 2 else parameter.grad[None]
        assert (per_seed.abs().sum(dim=-1) > 0).all(), name


def test_functions_with_their_own_gradients_equal_the_plain_ones(double: None) -> None:
    """LayerNorms and products of seeds, ReLU with dropout; gradients equal finite differences.

    Second derivatives, too, except those of LayerNorms.
    """
    x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    norms = [LayerNorm(3), LayerNorm(3)]
    params = [p for norm in norms for p in norm.parameters()]
    for number, parameter in enumerate(params, start=1):
        torch.nn.init.uniform_(parameter, 0.1 * number, number)
    for own in (x, x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()):
        assert torch.autograd.gradcheck(lambda t, *_: of_seeds(norms, t), (own, *params))
        expected = torch.stack([norm(of_seed) for norm, of_seed in zip(norms, own)])
        assert torch.allclose(of_seeds(norms, own), expected, atol=1e-12)
    for width in (2, 20):
        weight = torch.rand(2, 3, width, requires_grad=True)
        assert torch.allclose(times(x, weight), x @ weight)
        assert torch.autograd.gradcheck(times, (x, weight))
        assert torch.autograd.gradgradcheck(times, (x, weight))
        scaled = _Times.apply(x, weight, 2.5)  # as on a GPU
        assert torch.allclose(scaled, 2.5 * (x @ weight))
        assert torch.autograd.gradcheck(lambda *own: _Times.apply(*own, 2.5), (x, weight))
    mask = (torch.arange(24).view_as(x) % 3 > 0).double()
    assert torch.autograd.gradcheck(relu_dropout, (x, mask))
    assert torch.autograd.gradgradcheck(relu_dropout, (x, mask))
    assert torch.equal(relu_dropout(x, mask), x.relu() * mask)


@pytest.mark.parametrize("csr", [False, True])  # torch's matrix, as on a GPU
def test_sparse_products_equal_dense_ones_for_each_seed(
    csr: bool, double: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and gradients; empty rows, entries in any order, the same or other values a seed."""
    if csr:
        monkeypatch.setattr(sparse, "_times", sparse._by_csr)
    edges, values = torch.tensor([[3, 0, 3, 1], [0, 4, 2, 2]]), torch.rand(2, 4)
    matrix, other = SparseMatrix(edges, (5, 6), 2), torch.rand(2, 6, 3, requires_grad=True)
    for own in (values, values[0]):
        full = torch.zeros(2, 5, 6)
        full[:, edges[0], edges[1]] = own
        product = matrix.prepared(own)
        assert torch.allclose(product(other), full @ other)
        assert torch.autograd.gradcheck(product, other)
        assert torch.autograd.gradgradcheck(product, other)
        for shape in ((2, 1, 3), (2, 5, 3)):
            plus = torch.rand(shape, requires_grad=True)
            assert torch.allclose(product(other, plus), full @ other + plus)
            assert torch.autograd.gradcheck(product, (other, plus))


def test_row_adjacency_is_stochastic_weighted_and_counts_raw_self_loops_twice() -> None:
    _, edges = graph()
    with_loop = torch.cat([edges, torch.tensor([[4], [4]])], dim=1)
    adjacency = Adjacency(with_loop, N, "row")
    assert torch.allclose(adjacency.context.row_sum, torch.ones(N, 1))
    degree = (edges[0] == 4).sum() + 2
    assert adjacency(torch.eye(N)[None])[0, 4, 4].item() == pytest.approx(2 / degree.item())
    weights = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(2))
    product = Adjacency(edges, N, "row", weights)(torch.eye(N)[None])[0]
    assert torch.allclose(product.double(), dense(weights), atol=1e-6)


def test_dropped_edges_leave_a_normalised_symmetric_graph() -> None:
    _, edges = graph()
    adjacency = Adjacency(edges, N, "row", seeds=400)
    eye = torch.eye(N).expand(400, -1, -1)
    drawn = adjacency.dropped(0.3, Seeds(list(range(400)), torch.device("cpu")))(eye)
    kept = drawn > 0
    assert torch.allclose(drawn.sum(dim=-1), torch.ones(400, N))
    assert (kept == kept.mT).all()
    assert kept.diagonal(dim1=1, dim2=2).all()
    share = kept[:, edges[0], edges[1]].double().mean(dim=0)
    assert share.mean() == pytest.approx(0.7, abs=0.01)
    assert (share - 0.7).abs().max() < 0.12  # five standard deviations


@pytest.mark.parametrize("kind", ["drop_edge", "drop_node", "drop_message"])
def test_evaluation_uses_the_whole_graph(kind: str) -> None:
    model = network(kind, dropout=0.0).train()
    assert not torch.equal(model(), model())
    assert torch.equal(model.eval()(), network().eval()())


@pytest.mark.parametrize("kind", ["drop_node", "drop_message"])
def test_the_mean_over_seeds_is_the_plain_layer(kind: str) -> None:
    """Nodes drop rows of V, messages entries of Ã_ij V_j; both may be with dropped edges."""
    options = {"depth": 1, "dropout": 0.0, "seeds": range(500), "sparse": False}
    model = network(kind, **options, drop_edge=0.0).train()
    for parameter in (*model.weights, *model.biases):
        parameter.data = parameter.data[:1].expand_as(parameter).contiguous()
    draws = model()
    error = draws.std(dim=0) / len(draws) ** 0.5
    assert ((draws.mean(dim=0) - model.eval()()[0]).abs() < 5 * error).all()


def test_ones_as_messages_are_the_product() -> None:
    _, edges = graph()
    for kind in ("row", "symmetric"):
        adjacency = Adjacency(edges, N, kind, seeds=2)
        v = torch.randn(2, N, 3, generator=torch.Generator().manual_seed(0))
        ones = torch.ones(2, adjacency.edges.shape[1], 3)
        for own in (adjacency, adjacency.dropped(0.3, Seeds([0, 1], torch.device("cpu")))):
            assert torch.allclose(own(v, ones), own(v), atol=1e-6)


@pytest.mark.parametrize("residual", [1, 2])
@pytest.mark.parametrize("branch", ["rezero", "layerscale"])
def test_branches_begin_small_and_are_plain_with_a_factor_of_1(branch: str, residual: int) -> None:
    options = {"depth": 5, "residual": residual, "readout": True, "seeds": (0, 1)}
    model, plain = network(branch=branch, **options).eval(), network(**options).eval()
    hidden: list[Tensor] = []
    model(hidden)
    sums = hidden[::residual]
    assert all(torch.allclose(h, sums[0], atol=1e-2) for h in sums)
    if branch == "rezero":
        assert all(torch.equal(h, sums[0]) for h in sums)
    assert len(model.branches) == len(sums) - 1
    for factor in model.branches:
        factor.data.fill_(1)
    assert torch.equal(model(), plain())


def test_a_branch_with_a_negative_factor_leaves_features_below_0() -> None:
    """h ← h + α f(h), without a ReLU after the sum."""
    model = network(branch="rezero", residual=2, depth=5, readout=True).eval()
    for factor in model.branches:
        factor.data.fill_(-1.5)
    h, skipped, hidden = graph()[0].double(), 0.0, list[Tensor]()
    for layer, (w, b) in enumerate(zip(model.weights, model.biases)):
        h = (dense() @ h @ w[0].double() + b[0].double()).relu()
        if layer % 2 == 0:
            h = skipped = (-1.5 * h if layer else h) + skipped
    weight, bias = (own[0].double() for own in (model.dense[0].weight, model.dense[0].bias))
    assert torch.allclose(model(hidden)[0].double(), h @ weight + bias, atol=1e-5)
    assert (h < 0).any() and torch.allclose(hidden[-1][0].double(), h, atol=1e-5)


def test_input_features_may_keep_their_entries() -> None:
    model = network("gcn", depth=1, drop_input=False).train()
    assert torch.equal(model(), model.eval()())


def test_dense_and_sparse_features_give_the_same_logits() -> None:
    models = [network("gcnii", seeds=(0, 1), sparse=sparse).eval() for sparse in (True, False)]
    assert torch.allclose(models[0](), models[1](), atol=1e-5)


def test_glorot_keeps_the_size_of_features_and_uniform_shrinks_it() -> None:
    sizes = {}
    for init in ("uniform", "glorot"):
        weights = network("gcnii", depth=2, hidden=64, init=init).weights[0][0]
        sizes[init] = weights.var().item() * 64
    assert sizes["glorot"] == pytest.approx(1, abs=0.1)
    assert sizes["uniform"] == pytest.approx(1 / 3, abs=0.05)


def test_the_tuned_gcn_adds_a_linear_map_of_its_input_and_has_a_linear_readout() -> None:
    """Luo et al., NeurIPS 2024."""
    edges = torch.tensor([[0, 1, 1, 2, 3, 2], [1, 0, 2, 1, 2, 3]])
    x = torch.rand(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    options = {"depth": 3, "hidden": 6, "linear": True, "readout": True, "init": "orthogonal"}
    net = GCN([], x, edges, 2, [0], adjacency="symmetric", **options).double().eval()
    full = torch.eye(4).double().index_put(tuple(edges), torch.ones(()).double())
    root = full.sum(dim=1).rsqrt()
    mix, h = root[:, None] * full * root, x
    for weight, own, bias in zip(net.weights, net.linear, net.biases):
        h = (mix @ h @ weight[0] + h @ own[0] + bias[0]).relu()
    expected = h @ net.dense[0].weight[0] + net.dense[0].bias[0]
    torch.testing.assert_close(net()[0], expected, rtol=1e-6, atol=1e-7)
