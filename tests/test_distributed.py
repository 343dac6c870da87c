"""The process group of a command, that of a caller, and torch without any."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from oversmoothing import distributed
from oversmoothing.lab.processes import group

PROCESS = """
import atexit, glob, torch
from torch.nn.parallel import DistributedDataParallel
from oversmoothing.lab.processes import group

def gloo():
    names = [open(path).read() for path in glob.glob("/proc/self/task/*/comm")]
    return [name for name in names if "gloo" in name]

def run():
    with group(torch.device("cpu")):
        model = DistributedDataParallel(torch.nn.Linear(6, 6))
        cycle = [model]
        cycle.append(cycle)
        model(torch.ones(1, 6)).sum().backward()
        assert gloo()

run()
atexit._run_exitfuncs()
assert not gloo(), gloo()
"""

OF_A_CALLER = """
import os
import torch.distributed as dist
from oversmoothing import distributed
rank = int(os.environ.pop("RANK"))
dist.init_process_group("gloo", rank=rank, world_size=int(os.environ.pop("WORLD_SIZE")))
assert distributed.gathered(rank) == [0, 1] and distributed.from_first(rank) == 0
dist.barrier()
dist.destroy_process_group()  # the caller's own; gloo's threads would abort the exit
"""


STATISTICS = """
import tempfile, torch
from oversmoothing import distributed
from oversmoothing.lab.processes import group
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.training.recipes import AdamWPoly
from oversmoothing.lab.training.loop import BaseObjective, Checks, TrainingLoop

network = torch.nn.BatchNorm1d(3)
network.parameter_groups = lambda lr, head_factor: [{"params": [*network.parameters()], "lr": lr}]
class Sum(BaseObjective):
    def losses(self, model, part, step):
        return {"one": model(part["x"]).sum()}
objective = Sum()
def loader(batch_size, iterations, start, rank, world):
    for _ in range(start, iterations):
        yield {"x": torch.arange(6.0).view(2, 3) * (1 + rank), "name": ["a", "b"]}
def differ():
    means = distributed.gathered(network.running_mean)
    found.append(not torch.equal(*means))
    return {}

found, trainer = [], AdamWPoly(iterations=4, batch_size=4, warmup=0, workers=0)
with tempfile.TemporaryDirectory() as folder, group(torch.device("cpu")):
    recorder = Recorder(folder, [0])
    rest = trainer, recorder, torch.device("cpu")
    TrainingLoop(network, objective, loader, *rest, checks=Checks(2, differ)).fit()
    differ()
assert found == [False, False], found
"""


@pytest.mark.parametrize("code", [PROCESS, OF_A_CALLER])
def test_a_group_and_its_threads_end_without_error(code: str) -> None:
    by_two_processes(code)


def test_batch_norms_of_all_processes_are_measured_with_the_same_statistics() -> None:
    by_two_processes(STATISTICS)


def by_two_processes(code: str) -> None:
    """Runs a script in two processes, which must end without error."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    shared = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, env={**shared, "RANK": str(rank)}) for rank in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]


def test_a_torch_without_distributed_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    assert distributed.gathered(3) == [3] and distributed.from_first(3) == 3
    with group(torch.device("cpu")):
        assert distributed.sum_over_processes([torch.tensor(3)]) == [3]
