"""Products of a sparse matrix with dense ones, forward and backward, for several seeds at once."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class SparseMatrix:
    """Sparse matrices (R, K) of one pattern for S seeds, stored with their transposes, in CSR.

    They are the blocks of one matrix (S·R, S·K), so one product computes all seeds. torch's CSR
    product builds the transpose anew in every backward pass; here it is built once. Rows are summed
    one by one, so the result for a column does not depend on the number of columns.

    Args:
        edges: row and column of every entry, (2, E), each pair at most once, in any order.
        shape: (R, K).
        seeds: S.
    """

    def __init__(self, edges: Tensor, shape: tuple[int, int], seeds: int) -> None:
        (rows, columns), self.seeds = edges, seeds
        self.shape = (seeds * shape[0], seeds * shape[1])
        self._order = torch.argsort(rows * shape[1] + columns)
        self._order_t = torch.argsort(columns * shape[0] + rows)
        self._pattern = _pattern(edges[:, self._order], shape, seeds)
        self._pattern_t = _pattern(edges.flip(0)[:, self._order_t], shape[::-1], seeds)

    def prepared(self, values: Tensor) -> "Product":
        """Returns the function that multiplies the matrices with these entries by a tensor.

        Gradients flow to that tensor only. The result has its type; sums are in the wider of the
        two types.

        Shapes: values (E,) or (S, E) in the order of ``edges``; of the function: (S, K, C) ->
        (S, R, C).
        """
        values = values.expand(self.seeds, -1)
        forward = _matrix(self._pattern, values.index_select(1, self._order), self.shape)
        mirrored = values.index_select(1, self._order_t)
        backward = _matrix(self._pattern_t, mirrored, self.shape[::-1])
        return Product(forward, backward)


class Product:
    """Multiplies a sparse matrix by a tensor; it is immutable, so copies share it.

    Shapes: (S, K, C) -> (S, R, C).
    """

    def __init__(self, matrix: "_Matrix", transpose: "_Matrix") -> None:
        self.matrix, self.transpose = matrix, transpose

    def __call__(self, dense: Tensor) -> Tensor:
        return _SparseProduct.apply(dense, self.matrix, self.transpose)

    def __deepcopy__(self, memo: dict) -> "Product":
        return self  # torch cannot copy a matrix in CSR


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: "_Matrix", transpose: "_Matrix") -> Tensor:
        ctx.matrix, ctx.transpose = matrix, transpose
        return _times(matrix, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # for second derivatives
            return _SparseProduct.apply(grad, ctx.transpose, ctx.matrix), None, None
        return _times(ctx.transpose, grad), None, None


def _times(matrix: "_Matrix", dense: Tensor) -> Tensor:
    if matrix.dtype != dense.dtype:
        wide = torch.promote_types(matrix.dtype, dense.dtype)
        return _times(matrix.to(wide), dense.to(wide)).to(dense.dtype)
    return (matrix @ dense.flatten(0, 1)).view(len(dense), -1, dense.shape[-1])


class _Rows(NamedTuple):
    """A sparse matrix on a CPU, where sums of embeddings are faster than torch's CSR product."""

    pointers: Tensor
    columns: Tensor
    values: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    def to(self, dtype: torch.dtype) -> "_Rows":
        return self._replace(values=self.values.to(dtype))

    def __matmul__(self, dense: Tensor) -> Tensor:
        dense = dense.detach().contiguous()  # autograd must not record this product
        return F.embedding_bag(
            self.columns,
            dense,
            self.pointers,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )


_Matrix = _Rows | Tensor


def _matrix(pattern: tuple[Tensor, Tensor], values: Tensor, shape: tuple[int, int]) -> _Matrix:
    if values.device.type == "cpu":
        return _Rows(*pattern, values.flatten())
    return torch.sparse_csr_tensor(*pattern, values.flatten(), size=shape, check_invariants=False)


def _pattern(edges: Tensor, shape: tuple[int, int], seeds: int) -> tuple[Tensor, Tensor]:
    """Returns the row pointers and columns of S blocks in CSR, in 32 bits for faster products.

    Args:
        edges: of one block, sorted by row.
    """
    rows, columns = edges
    ends = torch.bincount(rows, minlength=shape[0]).cumsum(0)
    block = torch.arange(seeds, device=rows.device)[:, None]
    pointers = torch.cat([ends.new_zeros(1), (ends + block * len(rows)).flatten()])
    return pointers.int(), (columns + block * shape[1]).flatten().int()
