"""Sweeps and failures of two processes, which torchrun would start, over gloo."""

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import run_all, unfinished
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.tasks.nodes_minibatch import MiniBatchLoop

GNN = ["data.num_nodes=400", "backbone=pyg", "trainer=minibatch_random", "trainer.num_parts=2"]
GNN += ["trainer.accumulate=2", "trainer.epochs=2", "trainer.eval_every=1", "seeds=[0]"]
GNN += ["logger=none", "device=cpu"]


# Processes are forks of a server, which imports these modules and runs nothing. A fork of this
# process cannot train if a test before has started threads of autograd.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["oversmoothing.lab.launch.execute", "torch_geometric.nn", __name__])


def unchanged() -> None:
    """Changes nothing."""


@pytest.fixture
def sweep(tmp_path: Path) -> list[DictConfig]:
    words = [*GNN, f"paths.outputs={tmp_path}"]
    return [compose_config([*words, f"backbone.depth={depth}"]) for depth in (1, 2, 3)]


class Two:
    """Runs configs by two processes; each ends by itself, as there is no torchrun.

    Args:
        change: called before the runs, in the processes ``changed``.
    """

    def __init__(
        self,
        folder: Path,
        configs: list[DictConfig],
        change: Callable[[], None] = unchanged,
        changed: Sequence[int] = (1,),
    ) -> None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = str(free.getsockname()[1])
        self.said = [folder / f"said{rank}" for rank in range(2)]
        self.processes = [
            FORKS.Process(
                target=run,
                args=(rank, port, said, configs, change if rank in changed else unchanged),
            )
            for rank, said in enumerate(self.said)
        ]
        for process in self.processes:
            process.start()

    def end(self) -> tuple[list[int | None], list[list[str]]]:
        """Waits; returns the exit codes, and the lines of errors."""
        limit = time.monotonic() + 60
        for process in self.processes:
            process.join(max(0.0, limit - time.monotonic()))
        codes = [process.exitcode for process in self.processes]
        for process in self.processes:
            process.kill()
        said = [path.read_text() for path in self.said]
        assert "Traceback" not in "".join(said), "\n".join(said)
        lines = [text.splitlines() for text in said]
        return codes, [[line for line in each if line.startswith("error")] for each in lines]


def run(
    rank: int,
    port: str,
    said: Path,
    configs: list[DictConfig],
    change: Callable[[], None],
) -> None:
    """Runs configs as one of two processes, whose output goes to a file."""
    output = os.open(said, os.O_CREAT | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    change()
    run_all(configs)
    sys.exit(bool(unfinished(configs)))


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


def test_a_failure_of_one_process_ends_the_run_of_the_other(
    tmp_path: Path, sweep: list[DictConfig]
) -> None:
    codes, errors = Two(tmp_path, sweep, fails_in_its_second_epoch).end()
    assert (codes, results(sweep)) == ([1, 1], [True, False, False])
    [first], [second] = errors
    assert "another process" in first and second.endswith("a file is damaged")
    assert Two(tmp_path, sweep).end() == ([0, 0], [[], []])


def test_a_killed_process_ends_the_other_in_one_line(
    tmp_path: Path, sweep: list[DictConfig]
) -> None:
    codes, [lines, _] = Two(tmp_path, sweep[:1], killed).end()
    assert codes == [1, -signal.SIGKILL]
    assert "another process of this command has ended" in lines[0]
