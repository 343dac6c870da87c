"""Communication between the processes of ``torchrun``; without it there is one process."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Number of this process; process 0 writes files."""
    return int(os.environ.get("RANK", 0))


def world() -> int:
    """Number of processes."""
    return int(os.environ.get("WORLD_SIZE", 1))


def local_rank() -> int:
    """Number of this process on its machine, which is also its GPU's."""
    return int(os.environ.get("LOCAL_RANK", 0))


@contextlib.contextmanager
def group(device: torch.device) -> Iterator[None]:
    """Opens the process group of a run, and closes it when all processes have finished."""
    if world() == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()


def from_first(value: Any) -> Any:
    """Returns the value of process 0 in every process."""
    if not dist.is_initialized():
        return value
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


def gathered(value: Any) -> list[Any]:
    """Returns the values of all processes, ordered by process number."""
    if not dist.is_initialized():
        return [value]
    held = [None] * world()
    dist.all_gather_object(held, value)
    return held


def sum_over_processes(values: Sequence[Tensor]) -> list[Tensor]:
    """Sums scalars over processes in one exchange."""
    if not dist.is_initialized():
        return list(values)
    stacked = torch.stack([value.double() for value in values])
    dist.all_reduce(stacked)
    return [total.to(value.dtype) for total, value in zip(stacked, values)]
