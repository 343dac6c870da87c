"""GCN against torch-geometric and against a dense float64 reference, and its batch of seeds."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm, of_seeds
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.engine import relu_dropout, times
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.sparse import SparseMatrix

N, F, CLASSES = 30, 12, 3


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def graph(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Sparse features (N, F) and both directions of random edges."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(N, F, generator=generator).mul_(torch.rand(N, F, generator=generator) > 0.5)
    adjacency = torch.rand(N, N, generator=generator) > 0.85
    adjacency = (adjacency | adjacency.T).fill_diagonal_(False)
    return x, adjacency.nonzero().T


def network(aggregators: list | None = None, seeds: tuple = (0,), **options) -> GCN:
    x, edges = graph()
    return GCN(aggregators or [], x.to_sparse_csr(), edges, CLASSES, list(seeds), **options)


def test_equals_gcnconv_of_torch_geometric() -> None:
    """Symmetric normalisation, two layers with ReLU between."""
    x, edges = graph()
    model = network(depth=2, adjacency="symmetric").eval()
    h = x
    for layer in range(2):
        conv = pyg.GCNConv(*model.weights[layer].shape[1:])
        conv.lin.weight.data = model.weights[layer][0].T
        conv.bias.data = model.biases[layer][0, 0]
        h = conv(h, edges) if layer else conv(h, edges).relu()
    assert torch.allclose(model()[0], h, atol=1e-6)


def dense_reference(model: GCN, gamma: float, norm: bool) -> torch.Tensor:
    """h ← relu(LN((Ã + γ 11ᵀ/n) h W + b)) in float64 with the explicit matrix, seed 0."""
    x, edges = graph()
    a = torch.eye(N, dtype=torch.float64)
    a[edges[0], edges[1]] = 1
    a = a / a.sum(dim=1, keepdim=True) + gamma / N
    h = x.double()
    for layer, (w, b) in enumerate(zip(model.weights, model.biases)):
        h = a @ h @ w[0].double() + b[0].double()
        if layer < len(model.weights) - 1:
            h = (torch.nn.functional.layer_norm(h, h.shape[-1:]) if norm else h).relu()
    return h


@pytest.mark.parametrize("depth", [1, 2, 6])
@pytest.mark.parametrize("gamma", [-1.0, 0.0])
def test_equals_the_dense_matrix_in_float64(depth: int, gamma: float) -> None:
    model = network([partial(Centered, gamma), LayerNorm], depth=depth).eval()
    assert torch.allclose(model()[0].double(), dense_reference(model, gamma, True), atol=1e-5)


def test_gradients_equal_those_of_the_dense_matrix() -> None:
    model = network([partial(Centered, -1.0)], depth=3).eval()
    model()[0].square().sum().backward()
    sparse = [w.grad.clone() for w in model.weights]
    model.zero_grad()
    dense_reference(model, -1.0, False).square().sum().backward()
    for ours, reference in zip(sparse, (w.grad for w in model.weights)):
        assert torch.allclose(ours, reference, rtol=1e-4, atol=1e-6)


def test_row_adjacency_is_stochastic_and_counts_raw_self_loops_twice() -> None:
    x, edges = graph()
    with_loop = torch.cat([edges, torch.tensor([[4], [4]])], dim=1)
    model = GCN([], x.to_sparse_csr(), with_loop, CLASSES, [0])
    assert torch.allclose(model.adjacency.context.row_sum, torch.ones(N, 1))
    eye = torch.eye(N)[None]
    a = model.adjacency(eye)[0]
    degree = (edges[0] == 4).sum() + 2
    assert a[4, 4].item() == pytest.approx(2 / degree.item())


def test_renaming_the_nodes_renames_the_logits() -> None:
    x, edges = graph()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    moved = torch.empty_like(x).index_copy_(0, order, x)
    aggregators = [Centered, partial(ContraNorm, scale=0.5), LayerNorm]
    plain = GCN(aggregators, x.to_sparse_csr(), edges, CLASSES, [0], depth=4).eval()
    renamed = GCN(aggregators, moved.to_sparse_csr(), order[edges], CLASSES, [0], depth=4).eval()
    assert torch.allclose(renamed()[0, order], plain()[0], atol=1e-5)


STACKS = {
    "vanilla": [],
    "centered+layernorm": [Centered, LayerNorm],
    "pairnorm": [PairNorm],
    "contranorm+layernorm": [ContraNorm, LayerNorm],
}


@pytest.mark.parametrize("stack", STACKS)
def test_a_batch_of_seeds_equals_single_networks(stack: str, double: None) -> None:
    """Dropout on, five steps of Adam: every seed ends with the weights that it has alone.

    In float64: Adam divides gradients by their size, so rounding of the smallest ones shows.
    """
    together = train(network(STACKS[stack], seeds=(3, 7, 1), depth=3))
    for index, seed in enumerate((3, 7, 1)):
        alone = train(network(STACKS[stack], seeds=(seed,), depth=3))
        for ours, single in zip(together.weights, alone.weights):
            assert torch.allclose(ours[index], single[0], rtol=0, atol=1e-9)


def train(model: GCN) -> GCN:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model().logsumexp(dim=-1).mean(dim=1).sum().backward()
        optimizer.step()
    return model


def test_seeds_differ_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    model = network(seeds=(0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert not torch.allclose(model.weights[0][0], model.weights[0][1])


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
    mask = (torch.arange(24).view_as(x) % 3 > 0).double()
    assert torch.autograd.gradcheck(relu_dropout, (x, mask))
    assert torch.autograd.gradgradcheck(relu_dropout, (x, mask))
    assert torch.equal(relu_dropout(x, mask), x.relu() * mask)


def test_sparse_products_equal_dense_ones_for_each_seed(double: None) -> None:
    """Values and gradients; empty rows, entries in any order, the same or other values a seed."""
    edges, values = torch.tensor([[3, 0, 3, 1], [0, 4, 2, 2]]), torch.rand(2, 4)
    matrix, dense = SparseMatrix(edges, (5, 6), 2), torch.rand(2, 6, 3, requires_grad=True)
    for own in (values, values[0]):
        full = torch.zeros(2, 5, 6)
        full[:, edges[0], edges[1]] = own
        product = matrix.prepared(own)
        assert torch.allclose(product(dense), full @ dense)
        assert torch.autograd.gradcheck(product, dense)
        assert torch.autograd.gradgradcheck(product, dense)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("share", [True, False])
def test_gradient_reaches_every_parameter(stack: str, share: bool) -> None:
    model = network(STACKS[stack], (0, 1), depth=4, share_aggregators=share, dropout=0.1)
    model().logsumexp(dim=-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        per_seed = parameter.grad.flatten(1) if parameter.shape[0] == 2 else parameter.grad[None]
        assert (per_seed.abs().sum(dim=-1) > 0).all(), name


def test_residual_adds_the_layer_before() -> None:
    plain, residual = network(depth=3).eval(), network(depth=3, residual=1).eval()
    before, after = [], []
    plain(before), residual(after)
    assert torch.equal(after[0], before[0])
    h = plain.convolve(after[0], 1).relu()
    assert torch.allclose(after[1], h + after[0], atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"depth": 0}, {"hidden": 0}, {"dropout": 1.0}, {"residual": -1}]
    + [{"adjacency": "rw"}, {"init": "xavier"}],
)
def test_bad_settings_are_named(options: dict) -> None:
    with pytest.raises(InputError, match=rf"backbone\.{next(iter(options))}: expected"):
        network(**options)
