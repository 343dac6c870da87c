"""Communication between the processes of ``torchrun``; without it there is one process.

A command opens one process group and keeps it for all of its runs. Small values are exchanged by
gloo, so that no exchange waits for a GPU. During a run, every process watches for failures of the
others (``watch.py``): an error in one process ends all of them within seconds.
"""

import atexit
import contextlib
import gc
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from oversmoothing.errors import InputError
from oversmoothing.watch import Watch

if dist.is_available():
    # This module binds the default group at import, so import it before a group is open.
    import torch.distributed.nn.functional  # noqa: F401

TIMEOUT = timedelta(hours=1)  # of one exchange; longer than an evaluation by one process


def rank() -> int:
    """Number of this process; process 0 writes files."""
    return int(os.environ.get("RANK", 0))


def world() -> int:
    """Number of processes."""
    return int(os.environ.get("WORLD_SIZE", 1))


def initialized() -> bool:
    """Whether a process group is open, be it the command's or the caller's."""
    return dist.is_available() and dist.is_initialized()


def local_rank() -> int:
    """Number of this process on its machine, which is also its GPU's."""
    return int(os.environ.get("LOCAL_RANK", 0))


def cores() -> int:
    """Number of cores for each process of this machine, at least 1."""
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return max(1, len(allowed) // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


@contextlib.contextmanager
def group(device: torch.device) -> Iterator[None]:
    """Context for one run of all processes: opens the process group if needed, and watches the run.

    Raises:
        InputError: the connection to another process broke, probably because it was killed.
    """
    if world() == 1 or (initialized() and _watch is None):  # the group may be the caller's
        yield
        return
    watch = _joined(device)
    try:
        with watch:
            yield
            dist.barrier()
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        raise InputError(
            "another process of this command has ended; start the command again, and it continues "
            "from the last checkpoints"
        ) from error


def end_unless_all_failed() -> None:
    """Ends this process after a failed run, unless all processes can start the next one."""
    if _watch is not None:
        _watch.end_unless_all_failed()


_watch: Watch | None = None


def _joined(device: torch.device) -> Watch:
    """Joins the process group of the command at the first call; returns its watch."""
    global _watch
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if _watch is None:
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo", timeout=TIMEOUT)
        atexit.register(close)
        _watch = Watch(rank(), world())
    return _watch


def close() -> None:
    """Closes the process group and ends the threads of gloo.

    A thread that outlives the interpreter and then frees a tensor aborts the process. The threads
    end with the last reference to the group; models in DistributedDataParallel hold such
    references.
    """
    gc.collect()
    dist.destroy_process_group()


def _is_loss(error: RuntimeError) -> bool:
    """Whether an error says that the connection to another process broke."""
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


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
    training, the batch norms of each process have statistics of their own.
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
