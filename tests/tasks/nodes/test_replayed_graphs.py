"""Steps on graphs that a CUDA graph replays are the eager ones, also in a search."""

import pytest
import torch
from tapes import Tape, use_tapes
from torch import Tensor

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.search.stacked import Member, Stack, Work, without_test
from oversmoothing.lab.store.run import Recorder

BASE = ["data=sbm", "data.num_nodes=310", "backbone.depth=4", "backbone.hidden=8", "threads=1"]
BASE += ["trainer.epochs=12", "trainer.eval_every=2", "logger=none"]
CELLS = {
    "contranorm": ["aggregator=contranorm", "aggregator@then=layernorm"],
    "centered": ["aggregator=centered", "aggregator@then=layernorm"],
    "warm-up": ["aggregator=centered", "aggregator.warmup=5", "aggregator@then=graphnorm"],
    "drops": ["aggregator=pairnorm", "aggregator.mode=PN-SI", "backbone.drop_message=0.3"]
    + ["backbone.drop_node=0.2", "backbone.drop_edge=0.3", "backbone.residual=1"],
    "gcnii": ["backbone=gcnii", "trainer.dense_weight_decay=0.1"],
    "jknet": ["backbone=jknet"],
    "gprgnn": ["backbone=gprgnn", "trainer.weight_decay=0", "trainer.dense_weight_decay=0.1"],
    "dagnn": ["backbone=dagnn", "aggregator=centered"],
    "graphcon": ["backbone=graphcon", "backbone.linear=true", "aggregator=layernorm"],
    "g2": ["backbone=g2"],
}


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[Tape]:
    return use_tapes(monkeypatch)


def trained(words: list[str], folder) -> tuple[list[Tensor], list[dict]]:
    start = Start(compose_config([*BASE, *words]))
    network = start.network([0, 1])
    parts = start.parts
    recorder = Recorder(folder, [0, 1], checkpoint_seconds=1000)
    loop = parts.trainer.loop()(network, parts.data, parts.trainer, recorder, False)
    loop.fit()
    return [p.detach().clone() for p in network.parameters()], loop.chosen


@pytest.mark.parametrize("name", CELLS)
def test_replayed_steps_are_the_eager_ones_bit_by_bit(name: str, tapes, tmp_path) -> None:
    ours, chosen = trained(CELLS[name], tmp_path / "replayed")
    assert len(tapes) == 2 and all(tape.done for tape in tapes)  # steps and evaluations
    theirs, expected = trained([*CELLS[name], "trainer.cuda_graph=false"], tmp_path / "eager")
    assert len(tapes) == 2 and chosen == expected
    assert all(map(torch.equal, ours, theirs))


def test_networks_with_random_aggregators_run_without_a_graph(tapes, tmp_path) -> None:
    trained(["aggregator=contranorm", "aggregator.negatives=20"], tmp_path)
    assert not tapes


def test_a_search_replays_its_stack_and_captures_it_anew_when_it_shrinks(tapes) -> None:
    best = ["trainer.selection=best-val", *CELLS["centered"]]
    rates = ["trainer.lr=0.01"], ["trainer.lr=0.003", "backbone.dropout=0.3"]

    def weights(*words: str) -> list[Tensor]:
        configs = [compose_config([*BASE, *best, *own, *words]) for own in rates]
        start = Start(configs[0])
        work = Work(configs, start.task, without_test(start.parts.data), start.device)
        stack = Stack(work, [Member(0, 5), Member(1, 5), Member(1, 6)])
        stack.train(6)
        stack.keep([Member(1, 5), Member(1, 6)])
        stack.train(12)
        return [p.detach().clone() for p in stack.model.parameters()]

    eager = weights("trainer.cuda_graph=false")
    assert not tapes and all(map(torch.equal, weights(), eager)) and len(tapes) == 2
