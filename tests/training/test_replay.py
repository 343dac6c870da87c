"""Steps of the training loop that a CUDA graph replays are the eager ones."""

import contextlib
import gc
from functools import partial
from pathlib import Path

import pytest
import torch
from small_runs import words
from tapes import use_tapes

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.weights import read_weights, weights_path
from oversmoothing.lab.tasks.wsss import energy
from oversmoothing.lab.tasks.wsss.lattice import Lattice
from oversmoothing.lab.training.replay import captured

TASKS = {
    "wsss": ["task.method.start=5", "trainer.batch_size=2", "aggregator.warmup=0"],
    "segmentation": ["trainer.accumulate=1", "trainer.batch_size=2"],
    "classification": ["trainer.batch_size=2"],
}

GRAPHS = {"wsss": 2, "segmentation": 1, "classification": 1}


@pytest.mark.parametrize("task", TASKS)
def test_replayed_steps_are_the_eager_ones_bit_by_bit(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(*more: str) -> dict[str, torch.Tensor]:
        own = ["trainer.iterations=12", *TASKS[task], *more]
        config = compose_config(words(task, tmp_path / "outputs", *own))
        execute(config)
        return read_weights(weights_path(run_folder(config), 0))

    tapes = use_tapes(monkeypatch)
    monkeypatch.setattr(energy, "_plan", partial(Lattice, fixed=True))
    eager = weights("trainer.cuda_graph=false")
    assert not tapes
    replayed = weights()
    assert len(tapes) == GRAPHS[task]
    assert replayed.keys() == eager.keys()
    assert all(torch.equal(replayed[name], eager[name]) for name in eager)


def test_no_garbage_is_collected_during_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """To free an old graph would end it."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    assert captured(gc.isenabled, (), None) == (None, False)
    assert gc.isenabled()
    with pytest.raises(InputError, match="cuda_graph"):
        captured(partial(torch.zeros(2).view, 3), (), None)  # fails as a capture does
    assert gc.isenabled()
