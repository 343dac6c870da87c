"""Trainings, sweeps and failures of two processes over gloo, as torchrun starts them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from processes import ROOT, by_two

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import run_all, unfinished
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.tasks.nodes_minibatch import MiniBatchLoop

GNN = ["data.num_nodes=400", "backbone=pyg", "trainer=minibatch_random", "trainer.num_parts=2"]
GNN += ["trainer.accumulate=2", "trainer.epochs=2", "trainer.eval_every=1", "seeds=[0]"]
GNN += ["logger=none", "device=cpu"]


def unchanged() -> None:
    """Changes nothing."""


@pytest.fixture
def sweep(tmp_path: Path) -> list[DictConfig]:
    words = [*GNN, f"paths.outputs={tmp_path}"]
    return [compose_config([*words, f"backbone.depth={depth}"]) for depth in (1, 2, 3)]


def run(configs: list[DictConfig], change: Callable[[], None]) -> None:
    """Runs configs as one of two processes; ``change`` is called in the second one before."""
    if os.environ["RANK"] == "1":
        change()
    run_all(configs)
    sys.exit(bool(unfinished(configs)))


def two(
    configs: list[DictConfig], change: Callable[[], None] = unchanged
) -> tuple[list[int | None], list[list[str]]]:
    """Runs configs by two processes; returns the exit codes, and the lines of errors."""
    ended = by_two(run, configs, change)
    assert not any("Traceback" in err for *_, err in ended), ended
    lines = [err.splitlines() for *_, err in ended]
    errors = [[line for line in each if line.startswith("error")] for each in lines]
    return [code for code, *_ in ended], errors


def results(configs: list[DictConfig]) -> list[bool]:
    return [(run_folder(config) / "result.json").exists() for config in configs]


def fails_in_its_second_epoch() -> None:
    """Makes networks of two layers fail."""
    step = MiniBatchLoop.step

    def fails(loop: MiniBatchLoop) -> torch.Tensor:
        if loop.epoch == 1 and len(loop.model.nets[0].layers) == 2:
            raise InputError("a file is damaged")
        return step(loop)

    MiniBatchLoop.step = fails


def killed() -> None:
    MiniBatchLoop.step = lambda loop: os.kill(os.getpid(), signal.SIGKILL)


def test_a_failure_of_one_process_ends_the_run_of_the_other(sweep: list[DictConfig]) -> None:
    codes, errors = two(sweep, fails_in_its_second_epoch)
    assert (codes, results(sweep)) == ([1, 1], [True, False, False])
    [first], [second] = errors
    assert "another process" in first and second.endswith("a file is damaged")
    assert two(sweep) == ([0, 0], [[], []])


def test_a_killed_process_ends_the_other_in_one_line(sweep: list[DictConfig]) -> None:
    codes, [lines, _] = two(sweep[:1], killed)
    assert codes == [1, -signal.SIGKILL]
    assert "another process of this command has ended" in lines[0]


def test_torchrun_trains(tmp_path: Path) -> None:
    words = [*GNN, "backbone.depth=1", f"paths.outputs={tmp_path}"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*launcher, "train.py", *words], cwd=ROOT, check=True, timeout=300)
    assert results([compose_config(words)]) == [True]
