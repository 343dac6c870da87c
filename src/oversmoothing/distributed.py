"""Several processes under ``torchrun``; without it, one process and nothing to do."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Number of this process, 0 for the one that writes."""
    return int(os.environ.get("RANK", 0))


def world() -> int:
    """How many processes work together."""
    return int(os.environ.get("WORLD_SIZE", 1))


def local_rank() -> int:
    """Number of this process on its machine: its GPU."""
    return int(os.environ.get("LOCAL_RANK", 0))


@contextlib.contextmanager
def group(device: torch.device) -> Iterator[None]:
    """Joins the processes for the time of a run; leaves when all have come to its end."""
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
    """What process 0 holds, in every process."""
    if not dist.is_initialized():
        return value
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


def gathered(value: Any) -> list[Any]:
    """What every process holds, in the order of their numbers."""
    if not dist.is_initialized():
        return [value]
    held = [None] * world()
    dist.all_gather_object(held, value)
    return held


def sum_over_processes(values: Sequence[Tensor]) -> list[Tensor]:
    """Sums of scalars, in one exchange."""
    if not dist.is_initialized():
        return list(values)
    stacked = torch.stack([value.double() for value in values])
    dist.all_reduce(stacked)
    return [total.to(value.dtype) for total, value in zip(stacked, values)]
