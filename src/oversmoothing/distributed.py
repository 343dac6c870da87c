"""Values exchanged between the processes of ``torchrun``; without it there is one process."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def rank() -> int:
    """Returns the number of this process, from 0; process 0 writes files."""
    return int(os.environ.get("RANK", 0))


def world() -> int:
    """Returns the number of processes."""
    return int(os.environ.get("WORLD_SIZE", 1))


def initialized() -> bool:
    """Whether a process group is open, no matter who opened it."""
    return dist.is_available() and dist.is_initialized()


def sharded(model: nn.Module) -> bool:
    """Whether processes hold parts of a model's parameters, so that all must run a forward pass.

    Such are DTensors, and those of ``fully_shard``, which are whole after a forward pass, of
    FullyShardedDataParallel and of DeepSpeed (ZeRO-3).
    """
    wrapped = any(type(m).__name__ == "FullyShardedDataParallel" for m in model.modules())
    return (
        wrapped
        or any(True for _ in fully_sharded(model))
        or any(hasattr(p, "placements") or hasattr(p, "ds_id") for p in model.parameters())
    )


def fully_sharded(model: nn.Module) -> Iterator[Any]:
    """Yields the modules of a model that ``fully_shard`` has changed."""
    for module in model.modules():
        if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            yield module


def from_first(value: Any) -> Any:
    """Returns the value of process 0 in every process."""
    if not initialized():
        return value
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


def gathered(value: Any) -> list[Any]:
    """Returns the values of all processes, ordered by process number."""
    if not initialized():
        return [value]
    held = [None] * dist.get_world_size()
    dist.all_gather_object(held, value)
    return held


def share_buffers(network: nn.Module) -> None:
    """Copies the buffers of process 0 to every process.

    DistributedDataParallel does so only when a forward pass begins. After the last step of a
    training, the batch norms of the processes have different statistics.
    """
    if initialized():
        for buffer in network.buffers():
            dist.broadcast(buffer, src=0)


def sum_over_processes(values: Sequence[Tensor]) -> list[Tensor]:
    """Sums tensors over all processes, in float64 and in one exchange.

    Args:
        values: tensors of one shape, on one device.

    Returns:
        The sums, each with the type of its tensor; without a process group, the tensors themselves.
    """
    if not initialized():
        return list(values)
    stacked = torch.stack([value.double() for value in values])
    dist.all_reduce(stacked)
    return [total.to(value.dtype) for total, value in zip(stacked, values)]
