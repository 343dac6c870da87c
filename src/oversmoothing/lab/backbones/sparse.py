"""The normalised adjacency of a graph, DropEdge, and products of sparse and dense matrices.

.. math:: Ã = D^{-1} (A + I) \\quad or \\quad Ã = D^{-½} (A + I) D^{-½}

One product serves several seeds, forward and backward.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.checks import runs_triton, takes_kernels
from oversmoothing.checks import check_choice, check_edges
from oversmoothing.lab.backbones.per_seed import Seeds


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
        given = values.index_select(1, self._order).flatten()
        forward = _Matrix(self._pattern, given, self.shape)
        mirrored = values.index_select(1, self._order_t).flatten()
        backward = _Matrix(self._pattern_t, mirrored, self.shape[::-1])
        return Product(forward, backward)


class Product:
    """Multiplies a sparse matrix by a tensor; it is immutable, so copies share it.

    Shapes: (S, K, C) -> (S, R, C); what is added to the product: (S, R or 1, C).
    """

    def __init__(self, matrix: "_Matrix", transpose: "_Matrix") -> None:
        self.matrix, self.transpose = matrix, transpose

    def __call__(self, dense: Tensor, plus: Tensor | None = None) -> Tensor:
        return _SparseProduct.apply(dense, plus, self.matrix, self.transpose)

    def __deepcopy__(self, memo: dict) -> "Product":
        return self  # torch cannot copy a matrix in CSR


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, dense: Tensor, plus: Tensor | None, matrix: "_Matrix", transpose: "_Matrix"
    ) -> Tensor:
        ctx.matrix, ctx.transpose = matrix, transpose
        ctx.plus = None if plus is None else plus.shape
        return _times(matrix, dense, plus)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        of_plus = grad.sum_to_size(ctx.plus) if ctx.needs_input_grad[1] else None
        if torch.is_grad_enabled():  # for second derivatives
            return _SparseProduct.apply(grad, None, ctx.transpose, ctx.matrix), of_plus, None, None
        return _times(ctx.transpose, grad), of_plus, None, None


def _times(matrix: "_Matrix", dense: Tensor, plus: Tensor | None = None) -> Tensor:
    if matrix.dtype != dense.dtype:
        wide = torch.promote_types(matrix.dtype, dense.dtype)
        return _times(matrix.to(wide), dense.to(wide), plus).to(dense.dtype)
    pattern = matrix.pattern
    if pattern.order is not None and takes_kernels(dense):
        from oversmoothing.lab.backbones.kernels import sparse_product

        return sparse_product(*pattern[:2], matrix.values, *pattern[2:], dense, plus)
    if dense.device.type == "cpu":
        out = matrix.sums(dense.flatten(0, 1)).view(len(dense), -1, dense.shape[-1])
        return out if plus is None else out + plus
    return _by_csr(matrix, dense, plus)


def _by_csr(matrix: "_Matrix", dense: Tensor, plus: Tensor | None = None) -> Tensor:
    S, _, C = dense.shape
    out = dense.new_empty(S, matrix.shape[0] // S, C)
    rows = (out.zero_() if plus is None else out.copy_(plus)).flatten(0, 1)
    torch.addmm(rows, matrix.csr, dense.flatten(0, 1), out=rows)  # csr @ dense: two more kernels
    return out


class _Pattern(NamedTuple):
    """Where a sparse matrix has entries.

    Args:
        pointers, columns: of CSR, in 32 bits for faster products.
        order, many: for the kernels of a GPU, see ``by_length``.
    """

    pointers: Tensor
    columns: Tensor
    order: Tensor | None = None
    many: int = 0


class _Matrix(NamedTuple):
    """A sparse matrix in CSR."""

    pattern: _Pattern
    values: Tensor
    shape: tuple[int, int]

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    def to(self, dtype: torch.dtype) -> "_Matrix":
        return self._replace(values=self.values.to(dtype))

    @property
    def csr(self) -> Tensor:
        pattern = self.pattern[:2]
        return torch.sparse_csr_tensor(*pattern, self.values, self.shape, check_invariants=False)

    def sums(self, dense: Tensor) -> Tensor:
        """Multiplies by a matrix on a CPU, where this is faster than torch's CSR product."""
        dense = dense.detach().contiguous()  # autograd must not record this product
        return F.embedding_bag(
            self.pattern.columns,
            dense,
            self.pattern.pointers,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )


def _pattern(edges: Tensor, shape: tuple[int, int], seeds: int) -> _Pattern:
    """Returns the pattern of S blocks.

    Args:
        edges: of one block, sorted by row.
    """
    rows, columns = edges
    ends = torch.bincount(rows, minlength=shape[0]).cumsum(0)
    block = torch.arange(seeds, device=rows.device)[:, None]
    pointers = torch.cat([ends.new_zeros(1), (ends + block * len(rows)).flatten()])
    pointers, columns = pointers.int(), (columns + block * shape[1]).flatten().int()
    if not runs_triton(rows):
        return _Pattern(pointers, columns)
    from oversmoothing.lab.backbones.kernels import by_length

    return _Pattern(pointers, columns, *by_length(pointers))


Kind = Literal["row", "symmetric"]


class Adjacency:
    """The normalised adjacency Ã with self-loops, applied to several seeds at once.

    Args:
        edges: row and column of every entry of A, (2, E). A self-loop among them has weight 2 after
            adding I, as in ContraNorm's code.
        num_nodes: N.
        kind: ``row``: D⁻¹(A + I), or ``symmetric``: D^-½(A + I)D^-½.
        weights: of the edges, (E,); None if all are 1.
        seeds: S.

    Attributes:
        context: for aggregators.

    Raises:
        InputError: the kind is unknown, or edges are not pairs of these nodes.

    Shapes: v (S, N, C) -> (S, N, C).
    """

    def __init__(
        self,
        edges: Tensor,
        num_nodes: int,
        kind: Kind,
        weights: Tensor | None = None,
        seeds: int = 1,
    ) -> None:
        check_choice("backbone.adjacency", kind, get_args(Kind))
        check_edges(edges, num_nodes)
        self.num_nodes, self.kind = num_nodes, kind
        self.edges, self.weights = _with_self_loops(edges, num_nodes, weights)
        self.matrix = SparseMatrix(self.edges, (num_nodes, num_nodes), seeds)
        values = normalised(self.edges, self.weights, num_nodes, kind)
        self.values, self.product = values, self.matrix.prepared(values)
        self.context = Context(row_sum=self._row_sum(values), edges=self.edges, num_nodes=num_nodes)

    def __call__(self, v: Tensor, messages: Tensor | None = None) -> Tensor:
        """Computes Ã v; with factors of the messages (S, E, C), edge by edge."""
        if messages is None:
            return self.product(v)
        return _by_message(self.edges, self.values, v, messages)

    def dropped(self, rate: float, seeds: Seeds) -> "Dropped":
        """Draws a graph with fewer edges for each seed; self-loops stay."""
        kept = seeds.keep((self._pairs[1],), rate) > 0
        loops = self.edges[0] == self.edges[1]
        weights = self.weights * (kept[:, self._pairs[0]] | loops)
        of_seed = [normalised(self.edges, own, self.num_nodes, self.kind) for own in weights]
        row_sum, values = torch.stack([*map(self._row_sum, of_seed)]), torch.stack(of_seed)
        product = self.matrix.prepared(values)
        return Dropped(product, replace(self.context, row_sum=row_sum), values)

    @cached_property
    def _pairs(self) -> tuple[Tensor, int]:
        """Numbers the edges, with one number for both directions: (E,), and their count."""
        low, high = self.edges.min(dim=0).values, self.edges.max(dim=0).values
        edges, number = (low * self.num_nodes + high).unique(return_inverse=True)
        return number, len(edges)

    def _row_sum(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.num_nodes).index_add_(0, self.edges[0], values)[:, None]


class Dropped(NamedTuple):
    """Adjacencies with fewer edges, one for each seed.

    Args:
        product: multiplies by the matrix of each seed.
        context: for aggregators; ``row_sum`` (S, N, 1) is that of the remaining edges, and
            ``edges`` are those of the whole graph.
        values: the entries, (S, E).

    Shapes: v (S, N, C) -> (S, N, C).
    """

    product: Product
    context: Context
    values: Tensor

    def __call__(self, v: Tensor, messages: Tensor | None = None) -> Tensor:
        """As that of ``Adjacency``."""
        if messages is None:
            return self.product(v)
        return _by_message(self.context.edges, self.values, v, messages)


def _by_message(edges: Tensor, values: Tensor, v: Tensor, messages: Tensor) -> Tensor:
    rows, columns = edges
    sent = v[:, columns] * (values[..., None] * messages)
    return sent.new_zeros(v.shape).index_add(1, rows, sent).to(v.dtype)


def _with_self_loops(
    edges: Tensor, num_nodes: int, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns A + I as edges without duplicates and their weights."""
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    keys = torch.cat([edges, loops], dim=1)
    keys, where = (keys[0] * num_nodes + keys[1]).unique(return_inverse=True)
    given = torch.ones(edges.shape[1], device=edges.device) if weights is None else weights
    every = torch.cat([given, given.new_ones(num_nodes)])
    total = given.new_zeros(keys.shape[0]).index_add_(0, where, every)
    return torch.stack([keys // num_nodes, keys % num_nodes]), total


def normalised(edges: Tensor, weights: Tensor, num_nodes: int, kind: str) -> Tensor:
    """Returns the entries of D⁻¹A (``row``) or D^-½AD^-½ (``symmetric``), D the row sums of A.

    Shapes: rows and columns of the entries (2, E), weights (E,) -> (E,).
    """
    rows, columns = edges
    degree = weights.new_zeros(num_nodes).index_add_(0, rows, weights)
    if kind == "row":
        return weights / degree[rows]
    return weights / (degree[rows] * degree[columns]).sqrt()
