"""Replays the kernels of a training step from a CUDA graph.

A small network launches hundreds of kernels that each take microseconds, and the GPU waits for the
CPU between them. A CUDA graph is captured once and launched as a whole.

The function that is captured is the one that runs before, so a replay computes what a call would.
It has to read and write the same tensors in every call, make no decision on their values, and copy
nothing between host and device. Random numbers of the device are drawn anew in every replay.
"""

import contextlib
import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from oversmoothing.errors import InputError

FIRST = 3  # calls before the capture, in which libraries choose algorithms and allocate workspaces
MOST = 8  # graphs of one training; batches of more shapes than that run without


class Replayed:
    """Calls a function, and from the fourth call on replays what it did on the GPU.

    Args:
        function: returns tensors on the GPU. Every replay overwrites them.
        generators: random generators that the function uses, beside the GPU's default one.
        pool: memory that several graphs share; no graph reads what another has left there.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        generators: Sequence[torch.Generator] = (),
        pool: Any = None,
    ) -> None:
        self.function, self.generators, self.pool = function, generators, pool
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.output: Any = None

    def __call__(self) -> Any:
        self.calls += 1
        if self.calls <= FIRST:
            return aside(self.function)
        if self.graph is None:
            self.graph, self.output = captured(self.function, self.generators, self.pool)
        self.graph.replay()
        return self.output


class ReplayedBatches:
    """Replays a function of a batch, with one graph for each shape of batch.

    Args:
        function: maps a batch to tensors. It may read values of the batch that are not tensors only
            if ``key`` tells them apart.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self.function = function
        self.held: dict[Hashable, tuple[dict[str, Any], Replayed]] = {}
        self.pool: Any = None

    def __call__(self, batch: dict[str, Any], key: Hashable = None) -> Any:
        """Calls or replays the function; returns copies of its tensors.

        Args:
            batch: tensors on the device, and other values.
            key: what else decides which operations the function makes.
        """
        tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
        key = key, tuple((name, own.shape, own.dtype) for name, own in tensors.items())
        if key not in self.held:
            if len(self.held) == MOST:
                return self.function(batch)
            self._hold(key, batch, tensors)
        static, replayed = self.held[key]
        for name, value in tensors.items():
            static[name].copy_(value)
        return tree_map_only(Tensor, Tensor.clone, replayed())

    def _hold(self, key: Hashable, batch: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if self.pool is None:
            self.pool = memory()
        static = batch | {name: value.clone() for name, value in tensors.items()}
        self.held[key] = static, Replayed(partial(self.function, static), pool=self.pool)


def memory() -> Any:
    """Returns a name for memory that graphs share."""
    return torch.cuda.graph_pool_handle()


def aside(function: Callable[[], Any]) -> Any:
    """Calls a function on another stream, as calls before a capture must be."""
    now, other = torch.cuda.current_stream(), torch.cuda.Stream()
    other.wait_stream(now)
    with torch.cuda.stream(other):
        output = function()
    now.wait_stream(other)
    return output


def captured(
    function: Callable[[], Any], generators: Sequence[torch.Generator], pool: Any
) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Captures a function without running it; returns the graph and the tensors it will fill.

    Raises:
        InputError: the function does what a graph cannot repeat, such as copying to the host.
    """
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    try:
        with (
            uncollected(),
            torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"),
        ):
            output = function()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        raise InputError(
            f"trainer.cuda_graph: a training step cannot be captured ({said}); set it to false"
        ) from error
    return graph, output


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collects garbage before the context and not in it: to free an old graph ends a capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def set_capturable(optimizer: torch.optim.Optimizer, capturable: bool) -> None:
    """Prepares a fused optimizer for steps in a CUDA graph, or for steps without one.

    It is prepared again after each ``load_state_dict``. In a graph, learning rates are tensors,
    which ``set_rate`` changes.
    """

    def prepare(optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] = float(group["lr"])
            if capturable and group["params"]:
                group["lr"] = torch.tensor(group["lr"], device=group["params"][0].device)
            if "capturable" in group:
                group["capturable"] = capturable

    prepare(optimizer)
    optimizer.register_load_state_dict_post_hook(prepare)
    optimizer._warned_capturable_if_run_uncaptured = True  # the first steps are not captured


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Sets the learning rate of a group of an optimizer, in place if it is a tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
