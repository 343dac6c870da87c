"""Products of a sparse matrix with dense ones, forward and backward."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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
        forward = _csr(self._pattern, values.index_select(0, self._order), (rows, columns))
        backward = _csr(self._pattern_t, values.index_select(0, self._order_t), (columns, rows))
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
