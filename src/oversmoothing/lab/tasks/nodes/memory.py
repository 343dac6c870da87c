"""Estimates the memory of training on a whole graph before anything large is built.

With S seeds, N nodes, E entries of A + I, L layers of C channels and K classes, training takes
about

.. math:: 4 S N (a (C (L - 1) + K) + 2.25 F) + 60 E \\; \\text{bytes}, \\quad a = 6 + 5 \\cdot
    \\text{aggregators},

and 16 bytes per parameter, which include the gradient and Adam's two moments. F counts dense
features; sparse features take 60 S bytes per entry instead. A convolution of torch-geometric holds
2 E C floats during its call, and attention saves 1.25 E C floats in each layer. The factors were
fitted to the peak resident size on a CPU, which they meet within a factor of 2
(``benchmarks/memory.py``).
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.store.free_memory import free_memory, in_gib, require_free

WITH_ATTENTION = ("GAT", "Transformer")


def require_memory(
    graph: Graph, backbone: Callable, factories: Sequence, num_seeds: int, device: torch.device
) -> None:
    """Checks that training on a whole graph fits into the free memory.

    Warns if the estimate exceeds the free memory.

    Args:
        graph: to train on.
        backbone: factory of the networks, whose options give their sizes.
        factories: of the aggregators.
        num_seeds: number of networks that are trained together.
        device: of the training.

    Raises:
        InputError: not even half of the estimate fits.
    """
    needed, free = estimate(graph, backbone, factories, num_seeds), free_memory(device)
    one = in_gib(estimate(graph, backbone, factories, 1))
    fewer = f"fewer seeds at a time (one needs {one}), " if num_seeds > 1 else ""
    networks = f"{num_seeds} network{'s' * (num_seeds > 1)}"
    about = (
        f"data {graph.name}: training {networks} on all {graph.num_nodes:,} nodes at once needs "
        f"about {in_gib(needed)}"
    )
    way_out = (
        f"choose {fewer}a smaller backbone.hidden or backbone.depth, or "
        "trainer=minibatch_cluster, which trains on parts of the graph"
    )
    require_free(needed, free, about, way_out, device)


def estimate(graph: Graph, backbone: Callable, factories: Sequence, num_seeds: int) -> int:
    """Estimates the bytes that training takes at its peak, besides the graph itself."""
    N, F = graph.x.shape
    C, L = _option(backbone, "hidden", 32), _option(backbone, "depth", 2)
    widths, entries = C * (L - 1) + graph.num_classes, graph.edges.shape[1] + N
    acting = sum(getattr(make, "func", make) is not NoAggregator for make in factories)
    floats = (6 + 5 * acting) * N * widths + 4 * C * (F + widths)
    floats += 15 * graph.x.values().numel() if graph.x.is_sparse_csr else 2.25 * N * F
    conv = _option(backbone, "conv", "")
    kept = 1.25 * (L - 1) * num_seeds if any(word in conv for word in WITH_ATTENTION) else 0
    messages = (2 + kept) * entries * C if conv else 0
    return int(4 * (num_seeds * floats + messages) + 60 * entries)


def _option(backbone: Callable, name: str, default: Any) -> Any:
    """Returns an option of a factory, or its default; ``default`` if it has no such option."""
    found = inspect.signature(backbone).parameters.get(name)
    return default if found is None else found.default
