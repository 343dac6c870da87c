"""Checks the edges of a graph."""

import torch
from torch import Tensor

from oversmoothing.errors import InputError


def check_edges(edges: Tensor, num_nodes: int) -> None:
    """Raises InputError unless edges are pairs of nodes from 0 to N − 1."""
    if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype not in (torch.int32, torch.int64):
        raise InputError(
            f"edges: expected integers (2, E), both directions of every edge, got {edges.dtype} "
            f"{tuple(edges.shape)}; give edges=edge_index"
        )
    if edges.numel() and not (edges.min() >= 0 and edges.max() < num_nodes):
        raise InputError(
            f"edges: expected nodes from 0 to {num_nodes - 1}, got {int(edges.min())} to "
            f"{int(edges.max())}; check that edges= belongs to these nodes"
        )
