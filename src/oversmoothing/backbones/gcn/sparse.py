"""Products of a sparse matrix with dense ones, forward and backward."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

SUM = 0  # mode of torch.embedding_bag


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
        forward = _matrix(self._pattern, values.index_select(0, self._order), (rows, columns))
        mirrored = values.index_select(0, self._order_t)
        backward = _matrix(self._pattern_t, mirrored, (columns, rows))
        return lambda dense: _SparseProduct.apply(dense, forward, backward)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: "_Matrix", transpose: "_Matrix") -> Tensor:
        ctx.transpose = transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose @ grad.contiguous(), None, None


class _Rows(NamedTuple):
    """A sparse matrix on a CPU; FBGEMM's sums of embeddings are faster there than MKL's product."""

    pointers: Tensor
    columns: Tensor
    values: Tensor

    def __matmul__(self, dense: Tensor) -> Tensor:
        # Without gradients torch does not prepare its own, slower backward pass.
        bags = dense.detach(), self.columns, self.pointers, False, SUM, False, self.values, True
        return torch.embedding_bag(*bags)[0]


_Matrix = _Rows | Tensor


def _matrix(pattern: tuple[Tensor, Tensor], values: Tensor, shape: tuple[int, int]) -> _Matrix:
    if values.device.type == "cpu":
        return _Rows(*pattern, values)
    return torch.sparse_csr_tensor(*pattern, values, size=shape, check_invariants=False)


def _csr_pattern(rows: Tensor, columns: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Returns pointers to sorted rows, and columns, in 32 bits, which FBGEMM and cuSPARSE prefer."""
    counts = torch.bincount(rows, minlength=num_rows)
    pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return pointers.int(), columns.int()
