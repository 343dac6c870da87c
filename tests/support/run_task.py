"""Runs a task as the launcher does, without a config."""

from collections.abc import Callable
from pathlib import Path

import torch

from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Job, Parts, Result, Task

CPU = torch.device("cpu")


def run_task(
    task: Task,
    folder: Path,
    backbone: Callable,
    aggregators: list[Callable],
    seeds: list[int],
    recorder: type[Recorder] = Recorder,
) -> dict[int, Result]:
    """Network, check, run."""
    parts = Parts(aggregators, backbone)
    network = task.network(parts, seeds, CPU)
    task.check(network, parts)
    return task.run(network, Job(parts, seeds, recorder(folder, seeds), CPU))
