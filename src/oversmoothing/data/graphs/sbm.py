"""The stochastic block model of runs that are older than ``csbm``; kept to load those runs."""

import dataclasses
import hashlib
import json

import torch
from torch import Tensor

from oversmoothing.data.graphs import csbm
from oversmoothing.data.graphs.graph import Graph, to_csr


def generate(
    num_nodes: int = 1000,
    num_classes: int = 5,
    degree: float = 10.0,
    homophily: float = 0.6,
    features: int = 100,
    signal: float = 0.2,
    train_per_class: int = 20,
    num_val: int = 200,
    seed: int = 0,
) -> Graph:
    """Draws the graph of an older run, in quadratic time.

    Args, distribution and errors are those of ``csbm.generate``; the random numbers are others.
    """
    arguments = dict(locals())
    text = json.dumps(arguments, sort_keys=True)
    graph = csbm.assemble(arguments, _edges, hashlib.sha256(text.encode()).hexdigest()[:12])
    return dataclasses.replace(graph, x=to_csr(graph.x))


def _edges(
    order: Tensor, num_classes: int, inside: float, across: float, generator: torch.Generator
) -> Tensor:
    """Every pair i < j by its own coin, row by row: memory stays linear. (N,) -> (2, E)."""
    y, columns = order % num_classes, []
    for i in range(y.shape[0]):
        same = y[i + 1 :] == y[i]
        coins = torch.rand(same.shape[0], generator=generator, dtype=torch.float64)
        columns.append((coins < torch.where(same, inside, across)).nonzero()[:, 0] + i + 1)
    rows = torch.repeat_interleave(torch.tensor([len(c) for c in columns]))
    return torch.stack([rows, torch.cat(columns)])
