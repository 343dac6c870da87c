"""Converts graphs and parts of graphs for torch-geometric's loaders."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oversmoothing.lab.data.graph import Graph

if TYPE_CHECKING:  # importing torch-geometric takes seconds
    from torch_geometric.data import Data

Sample = Callable[[Tensor], "Data"]


def shuffled(indices: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    """Divides indices at random into batches of ``size``; the last one may be smaller."""
    order = torch.randperm(len(indices), generator=generator)
    return [part.sort().values for part in indices[order].split(size)]


def to_data(graph: Graph) -> "Data":
    """Converts the edges of a graph to torch-geometric's ``Data``, with indices of the nodes."""
    from torch_geometric.data import Data

    N = graph.num_nodes
    weights: dict[str, Any] = {} if graph.weights is None else {"edge_weight": graph.weights}
    return Data(edge_index=graph.edges.flip(0), n_id=torch.arange(N), num_nodes=N, **weights)


def rows(x: Tensor, nodes: Tensor) -> Tensor:
    """Returns rows of features, dense. Shapes: x, dense or CSR, (N, F), nodes (n,) -> (n, F)."""
    if x.layout == torch.strided:
        return x[nodes]
    starts, counts = x.crow_indices()[nodes].long(), x.crow_indices().diff()[nodes].long()
    row = torch.repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    entry = torch.arange(len(row), device=row.device) + (starts - before)[row]
    dense = x.values().new_zeros(len(nodes), x.shape[1])
    dense[row, x.col_indices()[entry].long()] = x.values()[entry]
    return dense
