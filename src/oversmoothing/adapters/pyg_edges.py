"""Passes the edges of a graph convolution on to its aggregators."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.site import Site
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError


def with_edges(
    context: Context, site: Site, conv: nn.Module, edge_index: Any, num_nodes: int
) -> Context:
    """Adds the entries of M, self-loops included, to a context if an aggregator reads them."""
    if not any(aggregator.reads_edges for aggregator in site):
        return context
    if edge_index is None:
        raise InputError(
            f"model: {type(conv).__name__} has no argument edge_index, which the aggregator reads; "
            "choose another aggregator"
        )
    edges = entries_of(conv, edge_index)
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    return replace(context, edges=torch.cat([edges, loops], dim=1), num_nodes=num_nodes)


def entries_of(conv: nn.Module, edge_index: Any) -> Tensor:
    """Returns row and column of every entry of M: the target and the source of every message."""
    if hasattr(edge_index, "coo"):  # a SparseTensor
        return torch.stack(edge_index.coo()[:2])
    if edge_index.layout != torch.strided:
        return edge_index.to_sparse_coo().coalesce().indices()
    return edge_index.flip(0) if conv.flow == "source_to_target" else edge_index


def between_targets(edges: Tensor, x: Sequence[Tensor | None], num_targets: int) -> Tensor:
    """Selects the entries of a bipartite graph that join two targets; self-loops stay.

    Args:
        edges: all entries.
        x: features of sources and targets; without features of their own, targets are the first
            sources.
        num_targets: number of targets.
    """
    sources, targets = x
    same = targets is None or torch.equal(sources[..., :num_targets, :], targets)
    return edges[:, edges[1] < num_targets if same else edges[0] == edges[1]]


def mixes(edges: Tensor) -> bool:
    """Whether any row has entries in two columns."""
    rows, columns = edges
    if not rows.numel():
        return False
    one = columns.new_zeros(int(rows.max()) + 1)
    one[rows] = columns  # any one column of each row
    return bool((one[rows] != columns).any())
