"""Refuses parts that do not fit into memory, before they are built."""

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from oversmoothing.errors import InputError
from oversmoothing.lab.config import limits
from oversmoothing.lab.launch.activations import activations
from oversmoothing.lab.store.free_memory import free_memory, in_gib, require_free
from oversmoothing.lab.tasks.base import Parts, Task
from oversmoothing.lab.training.recipes import Recipe

SMALL = 2**28  # bytes up to which tensors are created without a check of the free memory
SIZED = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randperm)
TRAINING = 16  # bytes per parameter: itself, its gradient, and two moments of Adam


def network_of(
    task: Task,
    parts: Parts,
    seeds: list[int],
    device: torch.device,
    trains_on: torch.device | None = None,
) -> nn.Module:
    """Builds and checks the network of a task if training it fits into the free memory.

    Args:
        task, parts, seeds: of the run.
        device: of the network.
        trains_on: where it is trained; None: on its device.

    Raises:
        InputError: it does not fit, or parts or options do not fit each other.
    """
    make = partial(task.network, parts, seeds, device)
    network = _built_if_small(make, isinstance(parts.trainer, Recipe))
    if network is None:
        with room_for("backbone"):
            network = make()
    task.check(network, parts)
    if "trainer" in task.needs and limits.are_on():
        require_room(network, task, parts, trains_on or device)
    return network


def _built_if_small(make: Callable[[], nn.Module], trains: bool) -> nn.Module | None:
    """Builds a network; returns None if it has large parameters and training it fits into memory.

    From the first large parameter on, parameters are counted but get no memory, so the network
    cannot be used.

    Raises:
        InputError: training the network does not fit into the free memory.
    """
    try:
        with room_for("backbone", trains) as bound:
            network = make()
    except InputError:
        raise
    except Exception:
        if not bound.without_content:  # tensors without content can make a constructor fail
            raise
    return None if bound.without_content else network


@contextlib.contextmanager
def room_for(part: str, trains: bool = False) -> Iterator["_Bounded"]:
    """Context that refuses tensors larger than the free memory.

    Args:
        part: of the config that is built in the context, for the message.
        trains: whether the tensors are parameters to train. If so, tensors from the first large one
            on get no content, and half of the memory to train all of them must be free.

    Raises:
        InputError: a tensor does not fit; the message names the part, the size and the free memory.
    """
    bound = _Bounded(part, trains)
    try:
        with bound if limits.are_on() else contextlib.nullcontext():
            yield bound
    except (RuntimeError, MemoryError) as error:  # torch raises RuntimeError on a CPU
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        reason = str(error).split("memory: ")[-1].split(". ")[0]
        line = f"{part}: does not fit into memory ({reason}); choose smaller sizes among {part}.…"
        raise InputError(line) from error


class _Bounded(TorchFunctionMode):
    """Checks the size of every tensor before it is created.

    It is not a dispatch mode, since that would import torch's compiler, which takes seconds.

    Attributes:
        without_content: whether tensors were created without content; modules with such tensors
            cannot be used.
    """

    def __init__(self, part: str, trains: bool) -> None:
        super().__init__()
        self.part, self.trains, self.total, self.without_content = part, trains, 0, False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in SIZED:
            size = _bytes(args, kwargs)
            self.total += size
            self.without_content |= self.trains and size > SMALL
            if self.without_content:
                self._require(
                    self.total * TRAINING // 8, "training its parameters takes more than", kwargs
                )
                kwargs = {**kwargs, "device": "meta"}
            elif size > SMALL:
                self._require(size, "one of its tensors takes", kwargs)
        return func(*args, **kwargs)

    def _require(self, size: int, what: str, kwargs: dict[str, Any]) -> None:
        device = torch.device(kwargs.get("device") or "cpu")
        free = free_memory(device)
        if free is not None and size > free:
            raise InputError(
                f"{self.part}: {what} {in_gib(size)}, and {in_gib(free)} are free on {device}; "
                f"choose smaller sizes among {self.part}.…"
            )


def _bytes(args: tuple, kwargs: dict[str, Any]) -> int:
    """Returns the bytes of a new tensor, whose sizes are given as a list or one by one."""
    lists = [argument for argument in args if isinstance(argument, (list, tuple))]
    sizes = lists[0] if lists else [size for size in args if type(size) is int]
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return math.prod(sizes) * dtype.itemsize if all(type(n) is int for n in sizes) else 0


def require_room(network: nn.Module, task: Task, parts: Parts, device: torch.device) -> None:
    """Checks that training a network fits into the free memory.

    Warns if the estimate exceeds the free memory. For networks on graphs only the parameters are
    counted here; the rest is estimated before they are built.

    Raises:
        InputError: not even half of the estimate fits.
    """
    count = sum(parameter.numel() for parameter in network.parameters())
    weights = (TRAINING - 4) * count
    about = f"backbone: training its {count:,} parameters takes {in_gib(weights)} more, besides"
    free = free_memory(device)
    smaller = f"choose a smaller backbone.…; {limits.WAY_OUT}"
    require_free(weights, free, f"{about} activations", smaller, device)
    if not isinstance(parts.trainer, Recipe):
        return
    number, bf16 = parts.trainer.at_once, parts.trainer.precision == "bf16"
    own = next(network.parameters()).device
    cast = torch.autocast(own.type, torch.bfloat16, enabled=bf16)
    kept = activations(network, partial(task.inputs, parts, number, own), cast)
    about = (
        f"trainer.batch_size: a step with {number:,} examples at once takes about "
        f"{in_gib(weights + kept)} more, {in_gib(kept)} of them for activations"
    )
    way_out = f"add trainer.accumulate=… for fewer at once, or {smaller}"
    require_free(weights + kept, free, about, way_out, device)
