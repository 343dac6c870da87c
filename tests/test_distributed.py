"""The process group of a command, that of a caller, and torch without any."""

import atexit
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import by_two, without_error
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from oversmoothing import distributed
from oversmoothing.lab.processes import group
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.training.loop import BaseObjective, Checks, TrainingLoop
from oversmoothing.lab.training.recipes import AdamWPoly


def gloo() -> list[str]:
    """The threads of gloo in this process."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


def of_a_command() -> None:
    trained()
    atexit._run_exitfuncs()
    assert not gloo(), gloo()


def trained() -> None:
    with group(torch.device("cpu")):
        model = DistributedDataParallel(nn.Linear(6, 6))
        cycle: list[object] = [model]
        cycle.append(cycle)
        model(torch.ones(1, 6)).sum().backward()
        assert gloo()


def of_a_caller() -> None:
    rank = int(os.environ.pop("RANK"))
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ.pop("WORLD_SIZE")))
    assert distributed.gathered(rank) == [0, 1] and distributed.from_first(rank) == 0
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("call", [of_a_command, of_a_caller])
def test_a_group_and_its_threads_end_without_error(call: Callable[[], None]) -> None:
    without_error(by_two(call))


class Norm(nn.BatchNorm1d):
    def parameter_groups(self, lr: float, head_factor: float) -> list[dict]:
        return [{"params": [*self.parameters()], "lr": lr}]


class Sum(BaseObjective):
    def losses(self, model: nn.Module, part: dict, step: int) -> dict[str, Tensor]:
        return {"one": model(part["x"]).sum()}


def loader(batch_size: int, iterations: int, start: int, rank: int, world: int) -> Iterator[dict]:
    for _ in range(start, iterations):
        yield {"x": torch.arange(6.0).view(2, 3) * (1 + rank), "name": ["a", "b"]}


def measured(folder: Path) -> None:
    """Compares the statistics of both processes at two evaluations and at the end."""
    network, found = Norm(3), []

    def differ() -> dict:
        means = distributed.gathered(network.running_mean)
        found.append(not torch.equal(*means))
        return {}

    trainer = AdamWPoly(iterations=4, batch_size=4, warmup=0, workers=0)
    with group(torch.device("cpu")):
        recorder = Recorder(folder / os.environ["RANK"], [0])
        rest = trainer, recorder, torch.device("cpu")
        TrainingLoop(network, Sum(), loader, *rest, checks=Checks(2, differ)).fit()
        differ()
    assert found == [False, False], found


def test_batch_norms_of_all_processes_are_measured_with_the_same_statistics(
    tmp_path: Path,
) -> None:
    without_error(by_two(measured, tmp_path))


def test_a_torch_without_distributed_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    assert distributed.gathered(3) == [3] and distributed.from_first(3) == 3
    with group(torch.device("cpu")):
        assert distributed.sum_over_processes([torch.tensor(3)]) == [3]
