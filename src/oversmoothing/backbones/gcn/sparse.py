"""Sparse matrices times dense ones, with gradients, on CPU and GPU.

torch's own backward through a CSR product rebuilds the transpose at every step; here the transpose
is made once. Rows are summed one by one, so a column's result does not depend on how many other
columns there are.
"""

import torch
from torch import Tensor


class SparseMatrix:
    """A sparse (R, K) matrix of fixed pattern, kept with its transpose, both in CSR.

    Args:
        edges: (2, E) row and column of every entry, each pair at most once, in any order.
        shape: (R, K).
    """

    def __init__(self, edges: Tensor, shape: tuple[int, int]) -> None:
        rows, columns = edges
        self.shape = shape
        self._order = torch.argsort(rows * shape[1] + columns)
        self._order_t = torch.argsort(columns * shape[0] + rows)
        self._pattern = _csr_pattern(rows[self._order], columns[self._order], shape[0])
        self._pattern_t = _csr_pattern(columns[self._order_t], rows[self._order_t], shape[1])

    def matmul(self, values: Tensor, dense: Tensor) -> Tensor:
        """Product with the matrix that has ``values`` in the pattern.

        Gradients flow to ``dense`` only.

        Shapes: values (E,) in the order of ``edges``, dense (K, C) -> (R, C).
        """
        return self.prepared(values)(dense)

    def prepared(self, values: Tensor) -> "Product":
        """The product as a function, for values that serve more than once."""
        rows, columns = self.shape
        forward = _csr(self._pattern, values[self._order], (rows, columns))
        backward = _csr(self._pattern_t, values[self._order_t], (columns, rows))
        return Product(forward, backward)


class Product:
    """dense (K, C) -> M @ dense (R, C), for one fixed M."""

    def __init__(self, forward: Tensor, backward: Tensor) -> None:
        self._forward = forward
        self._backward = backward

    def __call__(self, dense: Tensor) -> Tensor:
        return _SparseProduct.apply(dense, self._forward, self._backward)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dense: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose @ grad.contiguous(), None, None


def _csr_pattern(rows: Tensor, columns: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Row pointers and columns of entries sorted by row; 32 bit, which MKL and cuSPARSE prefer."""
    counts = torch.bincount(rows, minlength=num_rows)
    pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return pointers.int(), columns.int()


def _csr(pattern: tuple[Tensor, Tensor], values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(*pattern, values, size=shape, check_invariants=False)
