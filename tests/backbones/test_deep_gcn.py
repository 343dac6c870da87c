"""GCNII, JKNet, DropEdge and edge weights: parity with dense float64 forms, and laws."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context, Inside
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.engine import Engine
from oversmoothing.lab.backbones.gcn import GCN, GCNII, JKNet
from oversmoothing.lab.backbones.per_seed import Seeds
from oversmoothing.lab.backbones.sparse import Adjacency

N, F, CLASSES = 30, 12, 3
KINDS = {
    "gcnii": GCNII,
    "jknet-cat": JKNet,
    "jknet-max": partial(JKNet, jumping="max"),
    "drop_edge": partial(GCN, drop_edge=0.5),
    "symmetric": partial(GCN, drop_edge=0.5, adjacency="symmetric"),
}


def graph() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    adjacency = torch.rand(N, N, generator=generator) > 0.85
    adjacency = (adjacency | adjacency.T).fill_diagonal_(False)
    return torch.randn(N, F, generator=generator), adjacency.nonzero().T


def network(kind: str, seeds: tuple = (0,), aggregators: list | None = None, **options) -> Engine:
    x, edges = graph()
    return KINDS[kind](aggregators or [], x, edges, CLASSES, list(seeds), **options)


def dense(edges: Tensor, weights: Tensor | None = None) -> Tensor:
    """D⁻¹(A + I) in float64."""
    a = torch.eye(N, dtype=torch.float64)
    a[edges[0], edges[1]] += 1 if weights is None else weights.double()
    return a / a.sum(dim=1, keepdim=True)


def test_gcnii_is_its_paper_s_equation_in_float64() -> None:
    """Equation 5, with the centered term in the mixing."""
    model = network("gcnii", depth=5, aggregators=[partial(Centered, -0.5)]).eval()
    x, edges = graph()
    a = dense(edges) - 0.5 / N
    first, last = ([p[0].double() for p in (d.weight, d.bias)] for d in model.dense)
    h = h_0 = (x.double() @ first[0] + first[1]).relu()
    for layer, w in enumerate(model.weights, start=1):
        beta = math.log(0.5 / layer + 1)
        support = 0.9 * a @ h + 0.1 * h_0
        h = ((1 - beta) * support + beta * support @ w[0].double()).relu()
    assert torch.allclose(model()[0].double(), h @ last[0] + last[1], atol=1e-6)


@pytest.mark.parametrize("jumping", ["cat", "max"])
def test_jknet_reads_all_layers_of_the_gcn(jumping: str) -> None:
    model = network(f"jknet-{jumping}", depth=4, aggregators=[LayerNorm]).eval()
    outputs: list[Tensor] = []
    logits = model(outputs)
    joined = torch.cat(outputs, -1) if jumping == "cat" else torch.stack(outputs).amax(0)
    assert len(outputs) == 4
    assert torch.allclose(logits, model.dense[0](joined))
    h = None
    for layer, output in enumerate(outputs):
        h = model.at("after", layer, model.convolve(h, layer)).relu()
        assert torch.equal(h, output)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_seeds_equals_single_networks(kind: str) -> None:
    """Dropout and dropped edges included: every seed has the logits and gradients it has alone."""
    together = network(kind, (3, 7), [Centered, LayerNorm], depth=3)
    for _ in range(2):
        together.zero_grad()
        both = together()
        both.logsumexp(dim=-1).sum().backward()
    for index, seed in enumerate((3, 7)):
        alone = network(kind, (seed,), [Centered, LayerNorm], depth=3)
        for _ in range(2):
            alone.zero_grad()
            one = alone()
            one.logsumexp(dim=-1).sum().backward()
        assert torch.allclose(both[index], one[0], atol=1e-5)
        for ours, single in zip(together.weights, alone.weights):
            assert torch.allclose(ours.grad[index], single.grad[0], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_reaches_every_parameter(kind: str) -> None:
    model = network(kind, (0, 1), [LayerNorm], depth=3, dropout=0.1)
    model().logsumexp(dim=-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("kind", KINDS)
def test_renaming_the_nodes_renames_the_logits(kind: str) -> None:
    x, edges = graph()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    moved = torch.empty_like(x).index_copy_(0, order, x)
    plain = KINDS[kind]([Centered], x, edges, CLASSES, [0], depth=4).eval()
    renamed = KINDS[kind]([Centered], moved, order[edges], CLASSES, [0], depth=4).eval()
    assert torch.allclose(renamed()[0, order], plain()[0], atol=1e-5)


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
    logits = [network("symmetric", seeds, [ByRowSum], depth=3)() for seeds in ((3, 7), (3,), (7,))]
    assert torch.allclose(logits[0], torch.cat(logits[1:]), atol=1e-6)


def test_evaluation_uses_all_edges() -> None:
    model = network("drop_edge").train()
    assert not torch.equal(model(), model())
    whole = GCN([], *graph(), CLASSES, [0], drop_edge=0.0).eval()
    assert torch.equal(model.eval()(), whole())


def test_edge_weights_weigh_the_adjacency() -> None:
    _, edges = graph()
    weights = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(2))
    product = Adjacency(edges, N, "row", weights)(torch.eye(N)[None])[0]
    assert torch.allclose(product.double(), dense(edges, weights), atol=1e-6)


def test_dense_and_sparse_features_give_the_same_logits() -> None:
    x, edges = graph()
    models = [GCNII([], given, edges, CLASSES, [0, 1]).eval() for given in (x, x.to_sparse_csr())]
    assert torch.allclose(models[0](), models[1](), atol=1e-5)


def test_glorot_keeps_the_size_of_features_and_uniform_shrinks_it() -> None:
    sizes = {}
    for init in ("uniform", "glorot"):
        weights = network("gcnii", depth=2, hidden=64, init=init).weights[0][0]
        sizes[init] = weights.var().item() * 64
    assert sizes["glorot"] == pytest.approx(1, abs=0.1)
    assert sizes["uniform"] == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("gcnii", {"alpha": 1.5}), ("gcnii", {"lam": 0}), ("drop_edge", {"drop_edge": 1.0})]
    + [("jknet", {"jumping": "lstm"})],
)
def test_bad_settings_are_named(kind: str, options: dict) -> None:
    with pytest.raises(InputError, match=rf"backbone\.{next(iter(options))}: expected"):
        x, edges = graph()
        {"gcnii": GCNII, "drop_edge": GCN, "jknet": JKNet}[kind](
            [], x, edges, CLASSES, [0], **options
        )


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([[0, 1], [5, 0]], "nodes from 0 to 3, got 0 to 5"),
        ([[0, 1], [-1, 0]], "nodes from 0 to 3, got -1 to 1"),
        ([[0.0, 1.0], [1.0, 0.0]], "integers"),
        ([0, 1], "integers"),
    ],
)
def test_edges_that_would_become_other_edges_are_refused(edges: list, said: str) -> None:
    with pytest.raises(InputError, match=f"^edges: expected {said}"):
        Adjacency(torch.tensor(edges), 4, "row")
