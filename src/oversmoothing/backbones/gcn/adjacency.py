"""What a GCN does with a graph: propagate over its edges, and multiply its sparse features."""

from typing import Literal

import torch
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.backbones.gcn.sparse import SparseMatrix
from oversmoothing.backbones.per_seed import Seeds


class Adjacency:
    """The normalised adjacency Ã with self-loops, for several seeds at once.

    Args:
        edges: (2, E) with both directions of every edge; a self-loop in it weighs 2 after + I,
            as in the ContraNorm code.
        num_nodes: N.
        kind: ``row`` D⁻¹(A + I) or ``symmetric`` D^-½(A + I)D^-½.

    Shapes: v (S, N, C) -> (S, N, C).
    """

    def __init__(self, edges: Tensor, num_nodes: int, kind: Literal["row", "symmetric"]) -> None:
        edges, weights = _with_self_loops(edges, num_nodes)
        values = _normalised(edges, weights, num_nodes, kind)
        self.product = SparseMatrix(edges, (num_nodes, num_nodes)).prepared(values)
        row_sum = values.new_zeros(num_nodes).index_add_(0, edges[0], values)[:, None]
        self.context = Context(row_sum=row_sum, edges=edges, num_nodes=num_nodes)

    def __call__(self, v: Tensor) -> Tensor:
        S, N, C = v.shape
        mixed = self.product(v.transpose(0, 1).reshape(N, S * C))
        return mixed.view(N, S, C).transpose(0, 1)


class Features:
    """Sparse input features that stay sparse through dropout: one product for all seeds.

    Args:
        x: CSR (N, F).
        num_seeds: S.
    """

    def __init__(self, x: Tensor, num_seeds: int) -> None:
        N, F = x.shape
        rows = torch.repeat_interleave(x.crow_indices().diff().long())
        edges = torch.stack([rows, x.col_indices().long()])
        offsets = torch.arange(num_seeds, device=x.device) * edges.new_tensor([[N], [F]])
        blocks = (edges[:, None, :] + offsets[:, :, None]).flatten(1)  # block diagonal, one a seed
        self.matrix = SparseMatrix(blocks, (num_seeds * N, num_seeds * F))
        self.values = x.values()

    def matmul(self, weight: Tensor, rate: float, seeds: Seeds) -> Tensor:
        """dropout(x) @ weight. Shapes: weight (S, F, C) -> (S, N, C)."""
        S, F, C = weight.shape
        values = self.values.expand(S, -1)
        if rate:
            values = values * seeds.keep(self.values.shape, rate)
        return self.matrix.matmul(values.flatten(), weight.view(S * F, C)).view(S, -1, C)


def _with_self_loops(edges: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """A + I as coalesced edges and weights."""
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    keys = torch.cat([edges, loops], dim=1)
    keys, counts = (keys[0] * num_nodes + keys[1]).unique(return_counts=True)
    return torch.stack([keys // num_nodes, keys % num_nodes]), counts.float()


def _normalised(edges: Tensor, weights: Tensor, num_nodes: int, kind: str) -> Tensor:
    rows, columns = edges
    degree = weights.new_zeros(num_nodes).index_add_(0, rows, weights)
    if kind == "row":
        return weights / degree[rows]
    return weights / (degree[rows] * degree[columns]).sqrt()
