"""Keeps the graphs of the last calls, as far as memory allows."""

import functools
import inspect
import json
from collections.abc import Callable
from typing import ParamSpec

import torch

from oversmoothing.lab.data.graphs.graph import Graph

P = ParamSpec("P")
LIMIT = 2**30  # bytes


def kept(make: Callable[P, Graph]) -> Callable[P, Graph]:
    """Wraps a function so that it returns the same object for the same arguments.

    A sweep builds its graphs when it is checked and again when it runs. Graphs of up to 1 GiB in
    total are kept; the last one is always kept.
    """
    known: dict[str, Graph] = {}  # in the order of their last use

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> Graph:
        bound = inspect.signature(make).bind(*args, **kwargs)
        bound.apply_defaults()
        key = json.dumps(bound.arguments, default=str)
        graph = known.pop(key, None) or make(*args, **kwargs)
        while known and sum(map(_size, [*known.values(), graph])) > LIMIT:
            del known[next(iter(known))]
        known[key] = graph
        return graph

    return call


def _size(graph: Graph) -> int:
    """Returns the bytes of a graph's tensors."""
    parts = [value for value in vars(graph).values() if torch.is_tensor(value)]
    if graph.x.is_sparse_csr:
        parts += [graph.x.crow_indices(), graph.x.col_indices(), graph.x.values()]
    return sum(part.nbytes for part in parts if part.layout == torch.strided)
