"""ContraNorm over a sample of the nodes: its formula, its spread, and its random draws."""

import math
from collections.abc import Iterator

import pytest
import torch
from dense_contranorm import C, N, both, dense, graph, tokens
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from oversmoothing.aggregators import sparse_softmax
from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm, Negatives, begin_part
from oversmoothing.aggregators.sparse_softmax import average
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.gcn import GCN


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


def test_layers_draw_other_negatives() -> None:
    first, second = Negatives(9), Negatives(9)
    assert not torch.equal(first(N, torch.device("cpu")), second(N, torch.device("cpu")))


def test_draws_resume_and_evaluation_draws_nothing() -> None:
    x, context = tokens(N, C), graph()
    layer, other = ContraNorm(C, negatives=9), ContraNorm(C, negatives=9)
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

    with pytest.raises(InputError, match=r"^aggregator\.negatives: gradient checkpointing"):
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
