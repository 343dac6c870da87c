"""Sparse products of a GCN: with the normalised adjacency and with the input features."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.backbones.per_seed import Seeds


class Adjacency:
    """The normalised adjacency Ã with self-loops, applied to several seeds at once.

    Args:
        edges: both directions of every edge, (2, E). A self-loop among them has weight 2 after
            adding I, as in ContraNorm's code.
        num_nodes: N.
        kind: ``row``: D⁻¹(A + I), or ``symmetric``: D^-½(A + I)D^-½.

    Attributes:
        context: for aggregators.

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
    """Sparse input features, which stay sparse under dropout; one product serves all seeds.

    Args:
        x: features in CSR, (N, F).
        num_seeds: S.
    """

    def __init__(self, x: Tensor, num_seeds: int) -> None:
        N, F = x.shape
        rows = torch.repeat_interleave(x.crow_indices().diff().long())
        edges = torch.stack([rows, x.col_indices().long()])
        offsets = torch.arange(num_seeds, device=x.device) * edges.new_tensor([[N], [F]])
        blocks = (edges[:, None, :] + offsets[:, :, None]).flatten(1)  # a block for each seed
        self.matrix = SparseMatrix(blocks, (num_seeds * N, num_seeds * F))
        self.values = x.values()

    def matmul(self, weight: Tensor, rate: float, seeds: Seeds) -> Tensor:
        """Computes dropout(x) @ weight. Shapes: weight (S, F, C) -> (S, N, C)."""
        S, F, C = weight.shape
        values = self.values.expand(S, -1)
        if rate:
            values = values * seeds.keep(self.values.shape, rate)
        product = self.matrix.prepared(values.flatten())
        return product(weight.view(S * F, C)).view(S, -1, C)


def _with_self_loops(edges: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Returns A + I as edges without duplicates and their weights."""
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    keys = torch.cat([edges, loops], dim=1)
    keys, counts = (keys[0] * num_nodes + keys[1]).unique(return_counts=True)
    return torch.stack([keys // num_nodes, keys % num_nodes]), counts.float()


def _normalised(edges: Tensor, weights: Tensor, num_nodes: int, kind: str) -> Tensor:
    """Returns the entries of Ã."""
    rows, columns = edges
    degree = weights.new_zeros(num_nodes).index_add_(0, rows, weights)
    if kind == "row":
        return weights / degree[rows]
    return weights / (degree[rows] * degree[columns]).sqrt()


class SparseMatrix:
    """A sparse matrix (R, K) with a fixed pattern, stored with its transpose, both in CSR.

    The backward pass of torch's CSR product rebuilds the transpose at every step; here it is built
    once. Rows are summed one by one, so the result for a column does not depend on the number of
    columns.

    Args:
        edges: row and column of every entry, (2, E), each pair at most once, in any order.
        shape: (R, K).
    """

    def __init__(self, edges: Tensor, shape: tuple[int, int]) -> None:
        rows, columns = edges
        self.shape = shape
        self._order = torch.argsort(rows * shape[1] + columns)
        self._order_t = torch.argsort(columns * shape[0] + rows)
        self._pattern = _csr_pattern(rows[self._order], columns[self._order], shape[0])
        self._pattern_t = _csr_pattern(columns[self._order_t], rows[self._order_t], shape[1])

    def prepared(self, values: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns the function that multiplies the matrix with the entries ``values`` by a tensor.

        Gradients flow to that tensor only.

        Shapes: values (E,) in the order of ``edges``; of the function: (K, C) -> (R, C).
        """
        rows, columns = self.shape
        forward = _csr(self._pattern, values[self._order], (rows, columns))
        backward = _csr(self._pattern_t, values[self._order_t], (columns, rows))
        return lambda dense: _SparseProduct.apply(dense, forward, backward)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose @ grad.contiguous(), None, None


def _csr_pattern(rows: Tensor, columns: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Returns pointers to sorted rows, and columns, in 32 bits, which MKL and cuSPARSE prefer."""
    counts = torch.bincount(rows, minlength=num_rows)
    pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return pointers.int(), columns.int()


def _csr(pattern: tuple[Tensor, Tensor], values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(*pattern, values, size=shape, check_invariants=False)
