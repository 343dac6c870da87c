"""ContraNorm over non-neighbours, against the dense formula in float64; its memory; its graphs."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from dense_contranorm import C, N, both, dense, graph, tokens
from torch import Tensor
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

from oversmoothing.aggregators import neighbours, sparse_softmax
from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm, Negatives, begin_part
from oversmoothing.aggregators.neighbours import Neighbours
from oversmoothing.aggregators.sparse_softmax import average
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.data.planetoid import load


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles that do not divide N, and several strips."""
    monkeypatch.setattr(neighbours, "CPU_TILE", 32)
    monkeypatch.setattr(neighbours, "CPU_TILE_BF16", 48)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(sparse_softmax, "CELLS", 16 * N)


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.003])
def test_equals_the_dense_formula(
    small_tiles: None, temperature: float, directed: bool, dual: bool
) -> None:
    """By tiles and, where exp(1/τ) would overflow, by strips: values and gradients."""
    context, x = graph(directed), tokens(2, N, C)
    found = both(lambda x: average(x, context.neighbours, temperature, dual), x)
    expected = both(lambda x: dense(x, context, temperature, dual), x)
    for ours, theirs in zip(found, expected):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-9 / temperature)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.2},
        {"learnable": True, "positive": True},
        {"pre_norm": True, "layernorm": True, "identity": False},
    ],
)
def test_every_parameter_gets_the_gradient_of_the_dense_formula(options: dict) -> None:
    context, x = graph(), tokens(2, N, C)
    ours, theirs = (ContraNorm(C, **options).double() for _ in range(2))
    theirs._contrast = lambda x, context: dense(x, context, theirs.temperature)
    found, expected = (both(lambda x, m=m: m(x, context), x) for m in (ours, theirs))
    assert torch.allclose(torch.stack(found), torch.stack(expected), atol=1e-10)
    for pair in zip(ours.parameters(), theirs.parameters()):
        a, b = (
            torch.autograd.grad(m(x, context).sin().sum(), parameter)[0]
            for m, parameter in zip((ours, theirs), pair)
        )
        assert torch.allclose(a, b, atol=1e-10) and a.abs().max() > 0


@pytest.mark.parametrize("name, seeds", [("cora", 2), ("squirrel", 1)])
def test_float32_is_within_1e_5_of_the_dense_formula_on_real_graphs(
    name: str, seeds: int, data_root: Path, tmp_path: Path
) -> None:
    """Some rows of P, and its gradient to all nodes."""
    edges = load(name, root=str(data_root), cache=str(tmp_path)).edges
    num_nodes = int(edges.max()) + 1
    i = torch.arange(num_nodes)
    context = Context(edges=torch.cat([edges, i.expand(2, -1)], dim=1), num_nodes=num_nodes)
    x, rows = tokens(seeds, num_nodes, 32), i[::20]
    hidden = torch.zeros(num_nodes, num_nodes, dtype=torch.bool)
    hidden[context.edges[0], context.edges[1]] = True

    def some_rows(x: Tensor) -> Tensor:
        x_hat = F.normalize(x, dim=-1)
        cosines = x_hat[:, rows] @ x_hat.mT
        return 2 * x[:, rows] - cosines.masked_fill(hidden[rows], -torch.inf).softmax(dim=-1) @ x

    found = both(lambda x: ContraNorm(32)(x, context)[:, rows], x.float())
    for ours, theirs in zip(found, both(some_rows, x)):
        assert torch.allclose(ours.double(), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.003}, {"negatives": 100}, {"dual": True}]
)
def test_no_tensor_is_n_by_n(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    many = 1500
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(sparse_softmax, "CELLS", 128 * many)
    i = torch.arange(many)
    context = Context(edges=torch.stack([i, i]), num_nodes=many)
    x = torch.randn(many, C, requires_grad=True)
    with profile(profile_memory=True) as watched:
        ContraNorm(C, **options)(x, context).sum().backward()
    largest = max(event.self_cpu_memory_usage for event in watched.events())
    assert 4 * many * C <= largest < many**2


@pytest.fixture
def medium(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of float32 may be computed in bfloat16."""
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_tiles_in_bfloat16_are_within_its_rounding_of_float32(
    small_tiles: None, medium: None, temperature: float, directed: bool, dual: bool
) -> None:
    """Exponents have an absolute error of 2⁻⁸/τ, which is a relative one of E."""
    context, x = graph(directed), tokens(2, N, C)
    found = both(lambda x: average(x, context.neighbours, temperature, dual), x.float())
    expected = both(lambda x: dense(x, context, temperature, dual), x)
    for ours, exact in zip(found, expected):
        error = (ours - exact).norm() / exact.norm()
        assert ours.dtype == torch.float32 and 1e-4 < error < 2**-7 / temperature


@pytest.mark.parametrize("dtype, temperature", [(torch.float32, 0.09), (torch.float64, 1.0)])
def test_sharp_or_double_tiles_stay_exact(
    medium: None, dtype: torch.dtype, temperature: float
) -> None:
    context, x = graph(), tokens(2, N, C)
    found = average(x.to(dtype), context.neighbours, temperature)
    assert torch.allclose(found.double(), dense(x, context, temperature), rtol=0, atol=1e-4)


def test_low_precision_is_computed_in_float32() -> None:
    context, x = graph(), tokens(N, C).bfloat16()
    expected = average(x.float(), context.neighbours, 1.0)
    with torch.autocast("cpu", torch.bfloat16):
        found = average(x, context.neighbours, 1.0)
        wide = average(x.float(), context.neighbours, 1.0)
    assert found.dtype == torch.bfloat16 and torch.equal(found, expected.bfloat16())
    assert torch.equal(wide, expected)


def test_a_graph_is_sorted_once_and_again_if_its_edges_change_in_place_or_get_more_nodes() -> None:
    x, layer, edges = tokens(6, C), ContraNorm(C), torch.tensor([[0, 1, 2], [1, 2, 0]])
    context = Context(edges=edges, num_nodes=6)
    again = replace(context, row_sum=torch.ones(6, 1))  # as in every step with DropEdge
    assert again.neighbours is context.neighbours
    assert replace(context, edges=edges[:, :2]).neighbours is not context.neighbours

    def found(num_nodes: int) -> Tensor:
        return layer(x[:num_nodes], Context(edges=edges, num_nodes=num_nodes))

    def expected(num_nodes: int) -> Tensor:
        return layer(x[:num_nodes], Context(edges=edges.clone(), num_nodes=num_nodes))

    for _ in range(2):
        assert all(torch.equal(found(n), expected(n)) for n in (3, 6))
    before = found(6)
    edges += 3
    assert torch.equal(found(6), expected(6)) and not torch.equal(found(6), before)
    with torch.inference_mode():
        edges = edges.clone()
        assert torch.equal(found(6), expected(6))


@pytest.mark.parametrize("options", [{}, {"temperature": 0.01}, {"dual": True}, {"negatives": 3}])
def test_a_graph_without_nodes_has_no_output(options: dict) -> None:
    context = Context(edges=torch.empty(2, 0, dtype=torch.long), num_nodes=0)
    x = torch.empty(2, 0, C, requires_grad=True)
    out = ContraNorm(C, **options)(x, context)
    out.sum().backward()
    assert out.shape == x.grad.shape == x.shape


@pytest.mark.parametrize("edges", [[[0, 1], [N, 0]], [[0, 1], [-1, 0]]])
def test_neighbours_that_do_not_exist_are_refused(edges: list) -> None:
    """They would be other pairs of nodes."""
    context = Context(edges=torch.tensor(edges), num_nodes=N)
    with pytest.raises(InputError, match="^edges: "):
        ContraNorm(C)(tokens(N, C), context)


@pytest.mark.parametrize("temperature", [0.02, 0.01])
def test_float32_stays_finite_at_low_temperatures(temperature: float) -> None:
    i, x = torch.arange(N), tokens(2, N, C)
    found = average(x.float(), Neighbours(torch.stack([i, i]), N), temperature)
    expected = dense(x, Context(edges=torch.stack([i, i]), num_nodes=N), temperature)
    assert torch.allclose(found.double(), expected, rtol=0, atol=1e-3)


@pytest.fixture
def strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several strips, the last of which is smaller."""
    monkeypatch.setattr(sparse_softmax, "CELLS", 16 * N)


@pytest.mark.parametrize("directed", [False, True])
def test_a_sample_is_the_formula_over_the_drawn(strips: None, directed: bool) -> None:
    """The columns that are not drawn are hidden, as neighbours are."""
    context, x, chosen = graph(directed), tokens(2, N, C), torch.arange(1, N, 3)
    hidden = torch.ones(N, dtype=torch.bool)
    hidden[chosen] = False
    columns = torch.arange(N)[hidden]
    more = torch.cartesian_prod(torch.arange(N), columns).mT
    subset = Context(edges=torch.cat([context.edges, more], dim=1), num_nodes=N)
    found = both(lambda x: average(x, context.neighbours, 0.5, chosen=chosen), x)
    expected = both(lambda x: dense(x, subset, 0.5), x)
    assert torch.allclose(torch.stack(found), torch.stack(expected), atol=1e-10)


@pytest.mark.parametrize("context", [graph(), Context()])
def test_more_negatives_come_nearer_to_all(context: Context) -> None:
    """The mean over draws has a small bias; the spread falls as 1/√k; k = N is exact."""
    x = tokens(N, C)
    exact = ContraNorm(C)(x, context)
    assert torch.equal(ContraNorm(C, negatives=N)(x, context), exact)
    spread = {}
    for count in (8, 32):
        layer = ContraNorm(C, negatives=count)
        errors = torch.stack([layer(x, context) - exact for _ in range(300)])[:, 1:]
        spread[count] = errors.square().mean().sqrt()
        assert errors.mean(dim=0).square().mean().sqrt() < spread[count] / 5
    expected = math.sqrt(32 / 8 * (1 - 8 / N) / (1 - 32 / N))  # drawn without replacement
    assert 0.8 < spread[8] / spread[32] / expected < 1.25


def test_draws_differ_by_layer_and_resume_and_evaluation_draws_nothing() -> None:
    x, context = tokens(N, C), graph()
    layer, other = ContraNorm(C, negatives=9), ContraNorm(C, negatives=9)
    assert not torch.equal(layer(x, context), other(x, context))
    assert not torch.equal(layer(x, context), layer(x, context))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x, context), layer(x, context))
    assert torch.equal(layer.train()(x, context), other(x, context))


def test_processes_with_different_numbers_of_passes_resume() -> None:
    """The checkpoint is of process 0, which has one part more than process 1 in this step."""
    x, context = tokens(N, C), graph()
    first, second = (ContraNorm(C, negatives=9) for _ in range(2))
    second.load_state_dict(first.state_dict())
    for layer, passes in ((first, 3), (second, 2)):
        layer.advance(7)
        for _ in range(passes):
            layer(x, context)
    resumed = ContraNorm(C, negatives=9)
    resumed.load_state_dict(first.state_dict())
    for layer in (second, resumed):
        layer.advance(8)
    assert torch.equal(second(x, context), resumed(x, context))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_repeated_pass_compares_with_the_same_nodes(
    reentrant: bool,
) -> None:
    context, layer = graph(), ContraNorm(C, negatives=9)

    def gradient(repeats: bool) -> Tensor:
        x = tokens(N, C).requires_grad_()
        args = layer, x, context
        out = checkpoint(*args, use_reentrant=reentrant) if repeats else layer(x, context)
        out.sin().sum().backward()
        return x.grad

    with pytest.raises(InputError, match=r"^aggregator\.negatives: "):
        gradient(repeats=True)
    assert not torch.equal(gradient(repeats=False), gradient(repeats=False))
    layer.eval()
    assert torch.equal(gradient(repeats=True), gradient(repeats=False))


def test_a_part_of_a_step_draws_the_same_in_whichever_process() -> None:
    def drawn(*parts: int) -> list[list[int]]:
        torch.manual_seed(3)
        layer = torch.nn.ModuleList([Negatives(5)])
        layer[0].advance(7)
        found = []
        for part in parts:
            begin_part(layer, part)
            found += [layer[0](N, torch.device("cpu")).tolist() for _ in range(2)]
        return found

    alone = drawn(0, 1)
    assert drawn(0) + drawn(1) == alone
    assert len({*map(tuple, alone)}) == 4


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Several threads add up a sum in an order that depends on its size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_every_seed_draws_for_itself() -> None:
    def logits(*seeds: int) -> Tensor:
        factory = [lambda dim: ContraNorm(dim, negatives=9)]
        x = torch.eye(N).to_sparse_csr()
        net = GCN(factory, x, graph().edges, 3, list(seeds), depth=3, hidden=C)
        return net()

    together, alone = logits(0, 1), logits(1)
    assert torch.equal(together[1], alone[0])
