"""Refuses parts that do not fit into memory, before they fill it."""

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from oversmoothing.config import limits
from oversmoothing.errors import InputError
from oversmoothing.store.free_memory import free_memory, in_gib

SMALL = 2**28  # bytes of a tensor that is made without a look at the free memory
SIZED = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randperm)
TRAINING = 16  # bytes a parameter: itself, its gradient, and two moments of Adam


@contextlib.contextmanager
def room_for(part: str) -> Iterator[None]:
    """Refuses a tensor that is larger than the memory that is free.

    Args:
        part: of the config that is built meanwhile, for the message.

    Raises:
        InputError: naming the part, the size of the tensor and the free memory.
    """
    if not limits.are_on():
        yield
        return
    try:
        with _Bounded(part):
            yield
    except (RuntimeError, MemoryError) as error:  # torch has no type of its own on a CPU
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        reason = str(error).split("memory: ")[-1].split(". ")[0]
        line = f"{part}: does not fit into memory ({reason}); choose smaller sizes among {part}.…"
        raise InputError(line) from error


class _Bounded(TorchFunctionMode):
    """Looks at the size of every tensor before it is made.

    A mode of dispatch would import torch's compiler, which takes seconds.
    """

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in SIZED and (size := _bytes(args, kwargs)) > SMALL:
            device = torch.device(kwargs.get("device") or "cpu")
            free = free_memory(device)
            if free is not None and size > free:
                raise InputError(
                    f"{self.part}: one of its tensors takes {in_gib(size)}, and {in_gib(free)} are "
                    f"free on {device}; choose smaller sizes among {self.part}.…"
                )
        return func(*args, **kwargs)


def _bytes(args: tuple, kwargs: dict[str, Any]) -> int:
    """Bytes of a new tensor, from the list of its sizes, or from its sizes one by one."""
    lists = [argument for argument in args if isinstance(argument, (list, tuple))]
    sizes = lists[0] if lists else [size for size in args if type(size) is int]
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return math.prod(sizes) * dtype.itemsize if all(type(n) is int for n in sizes) else 0


def require_room(network: nn.Module, trains: bool, device: torch.device) -> None:
    """Checks that a network can be trained in the memory that is free besides it.

    Raises:
        InputError: not even half of what its parameters need while they are trained fits.
    """
    parameters = network.parameters() if isinstance(network, nn.Module) else ()  # nothing trains
    count = sum(parameter.numel() for parameter in parameters)
    needed, free = (TRAINING - 4) * count if trains else 0, free_memory(device)
    if not limits.are_on() or free is None or needed <= free:
        return
    line = (
        f"backbone: training its {count:,} parameters takes {in_gib(needed)} more, besides "
        f"activations, and {in_gib(free)} are free on {device}; choose a smaller backbone.…; "
        f"{limits.WAY_OUT}"
    )
    if needed / 2 > free:
        raise InputError(line)
    warnings.warn(line, stacklevel=2)
