"""Replays the kernels of a training step from a CUDA graph.

A small network launches hundreds of kernels that each take microseconds, and the GPU waits for the
CPU between them. A CUDA graph is captured once and launched as a whole.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

FIRST = 3  # calls before the capture, in which libraries choose algorithms and allocate workspaces


class Replayed:
    """Calls a function, and from the fourth call on replays what it did on the GPU.

    The function that is captured is the one that runs before, so a replay computes what a call
    would. It has to read and write the same tensors in every call, make no decision on their
    values, and copy nothing to the host.

    Args:
        function: returns a tensor on the GPU. Every replay overwrites it.
        generators: random generators that the function uses, beside the GPU's default one.
    """

    def __init__(
        self, function: Callable[[], Tensor], generators: Sequence[torch.Generator] = ()
    ) -> None:
        self.function, self.generators = function, generators
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.output: Tensor | None = None

    def __call__(self) -> Tensor:
        self.calls += 1
        if self.calls <= FIRST:
            return aside(self.function)
        if self.graph is None:
            self.graph, self.output = captured(self.function, self.generators)
        self.graph.replay()
        return self.output


def aside(function: Callable[[], Tensor]) -> Tensor:
    """Calls a function on another stream, as calls before a capture must be."""
    now, other = torch.cuda.current_stream(), torch.cuda.Stream()
    other.wait_stream(now)
    with torch.cuda.stream(other):
        output = function()
    now.wait_stream(other)
    return output


def captured(
    function: Callable[[], Tensor], generators: Sequence[torch.Generator]
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Captures a function without running it; returns the graph and the tensor it will fill."""
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        output = function()
    return graph, output
