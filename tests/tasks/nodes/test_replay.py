"""Steps that a CUDA graph replays: the same as eager steps, and nothing that a capture refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.search.stacked import Member, Stack, Work, without_test
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks import nodes
from oversmoothing.lab.training import replay

HOST = {"_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "masked_select", "bincount"}
BASE = ["data=sbm", "data.num_nodes=310", "backbone.depth=4", "backbone.hidden=8", "threads=1"]
BASE += ["trainer.epochs=12", "trainer.eval_every=2", "logger=none"]
CELLS = {
    "none": ["aggregator=none"],
    "layernorm": ["aggregator=layernorm"],
    "pairnorm": ["aggregator=pairnorm", "aggregator.mode=PN-SI"],
    "contranorm": ["aggregator=contranorm", "aggregator@then=layernorm"],
    "centered": ["aggregator=centered", "aggregator@then=layernorm"],
    "warm-up": ["aggregator=centered", "aggregator.warmup=5"],
    "drop edge": ["backbone.drop_edge=0.3"],
    "residual": ["backbone.residual=1"],
    "gcnii": ["backbone=gcnii", "trainer.dense_weight_decay=0.1"],
    "jknet": ["backbone=jknet"],
}


class Tape(TorchDispatchMode):
    """Stands for a CUDA graph: repeats recorded operations on the tensors of the recording."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Callable, tuple, dict, Any]] = []
        self.fresh = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        places = [t for t in tree_leaves(args[1:]) if torch.is_tensor(t) and t.dtype == torch.bool]
        assert name not in HOST and not (name.startswith("index") and places), name
        output = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, output))
        return output

    @torch.no_grad()
    def replay(self) -> None:
        """Repeats the operations, but the first time, since recording has computed them."""
        for function, *inputs, output in () if self.fresh else self.done:
            args, kwargs = tree_map_only(Tensor, Tensor.detach, inputs)
            held = {storage(t) for t in tree_leaves([args, kwargs]) if torch.is_tensor(t)}
            for old, new in zip(tree_leaves(output), tree_leaves(function(*args, **kwargs))):
                if torch.is_tensor(old) and storage(old) not in held:
                    old.detach().copy_(new)
        self.fresh = False


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def taped(function: Callable[[], Tensor], generators: Any) -> tuple[Tape, Tensor]:
    with Tape() as tape:
        output = function()
    return tape, output


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[Tape]:
    """Networks are trained as on a GPU, with tapes for CUDA graphs; collects them."""
    made: list[Tape] = []

    def collected(*args: Any) -> tuple[Tape, Tensor]:
        tape, output = taped(*args)
        made.append(tape)
        return tape, output

    monkeypatch.setattr(replay, "captured", collected)
    monkeypatch.setattr(replay, "aside", lambda function: function())
    monkeypatch.setattr(nodes, "replayable", lambda model, graph: model.replayable)
    return made


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


def test_a_search_replays_its_stack_and_captures_it_anew_when_it_shrinks(
    tapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = ["trainer.selection=best-val", *CELLS["centered"]]
    rates = ["trainer.lr=0.01"], ["trainer.lr=0.003", "backbone.dropout=0.3"]
    configs = [compose_config([*BASE, *best, *own]) for own in rates]
    start = Start(configs[0])
    work = Work(configs, start.task, without_test(start.parts.data), start.device)

    def weights() -> list[Tensor]:
        stack = Stack(work, [Member(0, 5), Member(1, 5), Member(1, 6)])
        stack.train(6)
        stack.keep([Member(1, 5), Member(1, 6)])
        stack.train(12)
        return [p.detach().clone() for p in stack.model.parameters()]

    from oversmoothing.lab.search import stacked

    eager = weights()
    monkeypatch.setattr(stacked, "replayable", lambda model, graph: model.replayable)
    assert all(map(torch.equal, weights(), eager)) and len(tapes) == 2
