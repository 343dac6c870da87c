r"""Kernels of a graph layer on a GPU, where short kernels of torch take most of a step.

.. math:: h = Ã v + b, \quad y = \mathrm{LN}(h), \quad v' = \mathrm{dropout}(\mathrm{relu}(y)) W

Each line of a layer is one kernel forward and one or two backward. Sums over nodes are made in two
steps, first of some rows, then of these sums, so that results do not vary from run to run. Products
are in TF32 unless torch computes them in float32.

The module imports Triton, which comes with torch for CUDA.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from oversmoothing.aggregators.checks import differentiable_once

ROWS = 64  # of one program, or fewer if they are long
CELLS = 4096  # numbers of one program


def precision() -> str:
    """Returns the name of the precision of products, as set for torch."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _width(channels: int) -> int:
    return max(16, triton.next_power_of_2(channels))


def _rows_of(channels: int) -> int:
    return max(1, min(ROWS, CELLS // _width(channels)))


# ---------------------------------------------------------------- Ã v + b
LONG = 32  # entries above which a row has its own program
HEIGHT = 16  # short rows of a program


@triton.jit
def _finish(total, row, known, plus, out, c, rows, C, plus_rows, ADDS: tl.constexpr):
    """Adds ``plus`` to the products of some rows and writes them."""
    if ADDS:
        place = row // rows * plus_rows + tl.minimum(row % rows, plus_rows - 1)
        total += tl.load(plus + place * C + c, mask=known, other=0.0)
    tl.store(out + row * C + c, total, mask=known)


@triton.jit
def _long_row(
    pointers, columns, values, row, dense, plus, out, c, rows, C, plus_rows,
    ADDS: tl.constexpr, MOST: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    total, end = tl.zeros((WIDTH,), dtype=tl.float32), tl.load(pointers + row + 1)
    for first in range(tl.load(pointers + row), end, MOST):
        k = first + tl.arange(0, MOST)
        column = tl.load(columns + k, mask=k < end, other=0).to(tl.int64)
        value = tl.load(values + k, mask=k < end, other=0.0)
        known = (k < end)[:, None] & (c < C)[None, :]
        x = tl.load(dense + column[:, None] * C + c[None, :], mask=known, other=0.0)
        total += tl.sum(value[:, None] * x, axis=0)
    _finish(total, row, c < C, plus, out, c, rows, C, plus_rows, ADDS)


@triton.jit
def _short_rows(
    pointers, columns, values, row, exist, dense, plus, out, c, rows, C, plus_rows,
    ADDS: tl.constexpr, HEIGHT: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    start = tl.load(pointers + row, mask=exist, other=0)
    end = tl.load(pointers + row + 1, mask=exist, other=0)
    total = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for first in range(0, tl.max(end - start), ENTRIES):
        k = start[:, None] + first + tl.arange(0, ENTRIES)[None, :]
        some = k < end[:, None]
        column = tl.load(columns + k, mask=some, other=0).to(tl.int64)
        value = tl.load(values + k, mask=some, other=0.0)
        known = some[:, :, None] & (c < C)[None, None, :]
        place = column[:, :, None] * C + c[None, None, :]
        x = tl.load(dense + place, mask=known, other=0.0)
        total += tl.sum(value[:, :, None] * x, axis=1)
    known = exist[:, None] & (c < C)[None, :]
    _finish(total, row[:, None], known, plus, out, c[None, :], rows, C, plus_rows, ADDS)


@triton.jit
def _sparse(
    pointers, columns, values, order, dense, plus, out, many, every, rows, C, plus_rows,
    ADDS: tl.constexpr, HEIGHT: tl.constexpr, ENTRIES: tl.constexpr, MOST: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if program < many:
        own = tl.load(order + program).to(tl.int64)
        _long_row(pointers, columns, values, own, dense, plus, out, c, rows, C, plus_rows,
                  ADDS, MOST, WIDTH)  # fmt: skip
    else:
        number = many + (program - many) * HEIGHT + tl.arange(0, HEIGHT)
        some = tl.load(order + number, mask=number < every, other=0).to(tl.int64)
        _short_rows(pointers, columns, values, some, number < every, dense, plus, out, c, rows,
                    C, plus_rows, ADDS, HEIGHT, ENTRIES, WIDTH)  # fmt: skip


def by_length(pointers: Tensor) -> tuple[Tensor, int]:
    """Returns the rows of a matrix in CSR, the longest first, and how many are long."""
    lengths = pointers.diff()
    order = lengths.argsort(descending=True, stable=True)
    return order.int(), int((lengths > LONG).sum())


def sparse_product(
    pointers: Tensor,
    columns: Tensor,
    values: Tensor,
    order: Tensor,
    many: int,
    dense: Tensor,
    plus: Tensor | None = None,
) -> Tensor:
    """Multiplies S blocks of a sparse matrix by a tensor, and adds another one.

    Args:
        pointers, columns, values: the matrix in CSR, (S R, S K).
        order, many: what ``by_length`` returns.
        dense, plus: float32, (S, K, C) and (S, R or 1, C).

    Shapes: -> (S, R, C).
    """
    (S, _, C), every = dense.shape, len(order)
    dense, out = dense.contiguous(), dense.new_empty(S, every // S, C)
    other = dense if plus is None else plus.expand(S, -1, C).contiguous()
    width = min(64, _width(C))
    _sparse[many + triton.cdiv(every - many, HEIGHT), triton.cdiv(C, width)](
        pointers, columns, values, order, dense, other, out, many, every, every // S, C,
        other.shape[1], plus is not None, HEIGHT, 8, 128, width,
    )  # fmt: skip
    return out


# ---------------------------------------------------------------- LayerNorm
@triton.jit
def _rows(N, C, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Returns the places of a program's rows from the first, (ROWS, WIDTH), and which exist."""
    row, c = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    exist = tl.program_id(0) * ROWS + row < N
    return row[:, None] * C + c[None, :], exist[:, None] & (c < C)[None, :]


@triton.jit
def _first(x, N, C, ROWS: tl.constexpr):
    """Returns the address of a program's first row, of the N rows of its seed."""
    return x + (tl.program_id(1).to(tl.int64) * N + tl.program_id(0) * ROWS) * C


@triton.jit
def _normed(x, known, C, eps):
    """Returns normalised rows and the factor of each."""
    centred = tl.where(known, x - (tl.sum(x, axis=1) / C)[:, None], 0.0)
    factor = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / C + eps)
    return centred * factor[:, None], factor


@triton.jit
def _norm(x, scale, shift, out, N, C, eps, AFFINE: tl.constexpr, ROWS: tl.constexpr,
          WIDTH: tl.constexpr):  # fmt: skip
    place, known = _rows(N, C, ROWS, WIDTH)
    y, _ = _normed(tl.load(_first(x, N, C, ROWS) + place, mask=known, other=0.0), known, C, eps)
    if AFFINE:
        c = tl.arange(0, WIDTH)
        own = tl.program_id(1) * C + c
        y = y * tl.load(scale + own, mask=c < C)[None, :]
        y += tl.load(shift + own, mask=c < C)[None, :]
    tl.store(_first(out, N, C, ROWS) + place, y, mask=known)


@triton.jit
def _norm_backward(grad, x, scale, dx, partial, N, C, eps, AFFINE: tl.constexpr,
                   ROWS: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """Writes the gradient of x and, for scale and shift, sums over the rows of a program."""
    place, known = _rows(N, C, ROWS, WIDTH)
    y, factor = _normed(
        tl.load(_first(x, N, C, ROWS) + place, mask=known, other=0.0), known, C, eps
    )
    g = tl.load(_first(grad, N, C, ROWS) + place, mask=known, other=0.0)
    if AFFINE:
        c, blocks, S = tl.arange(0, WIDTH), tl.num_programs(0), tl.num_programs(1).to(tl.int64)
        own = (tl.program_id(1).to(tl.int64) * blocks + tl.program_id(0)) * C + c
        tl.store(partial + own, tl.sum(tl.where(known, g * y, 0.0), axis=0), mask=c < C)
        tl.store(partial + S * blocks * C + own, tl.sum(g, axis=0), mask=c < C)
        g = g * tl.load(scale + tl.program_id(1) * C + c, mask=c < C, other=0.0)[None, :]
    along = tl.sum(g * y, axis=1) / C
    g = g - (tl.sum(g, axis=1) / C)[:, None] - y * along[:, None]
    tl.store(_first(dx, N, C, ROWS) + place, g * factor[:, None], mask=known)


class LayerNorms(torch.autograd.Function):
    """The LayerNorms of S seeds.

    Shapes: x (S, N, C); scale, shift (S, 1, C) or None -> (S, N, C).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, eps: float, scale: Tensor | None, shift: Tensor | None
    ) -> Tensor:
        (S, N, C), affine, x = x.shape, scale is not None, x.contiguous()
        ctx.eps, out = eps, torch.empty_like(x)
        ctx.save_for_backward(x, scale)
        given = (x if own is None else own.contiguous() for own in (scale, shift))
        rows = _rows_of(C)
        _norm[triton.cdiv(N, rows), S](x, *given, out, N, C, eps, affine, rows, _width(C))
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        (S, N, C), rows, dx = x.shape, _rows_of(x.shape[-1]), torch.empty_like(x)
        blocks = triton.cdiv(N, rows)
        partial = x.new_empty(2, S, blocks, C)
        given = grad.contiguous(), x, x if scale is None else scale.contiguous(), dx, partial
        affine = scale is not None
        _norm_backward[blocks, S](*given, N, C, ctx.eps, affine, rows, _width(C))
        of_affine = partial.sum(dim=2, keepdim=True) if affine else (None, None)
        return dx, None, *of_affine


# ---------------------------------------------------------------- dropout(relu(y)) W
WARPS = {"tf32": 4, "ieee": 8}  # in float32, the registers of 4 do not suffice


@triton.jit
def _dropped(x, mask, place, known, N, F, apart, SOME: tl.constexpr, ROWS: tl.constexpr):
    """Returns relu(x) where the mask is true, else 0; masks of seeds begin ``apart`` numbers."""
    h = tl.load(_first(x, N, F, ROWS) + place, mask=known, other=0.0)
    h = tl.maximum(h, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if SOME:
        own = mask + tl.program_id(1).to(tl.int64) * apart
        kept = tl.load(_first(own, 0, F, ROWS) + place, mask=known, other=0)
        h = tl.where(kept != 0, h, 0.0)
    return h


@triton.jit
def _times(x, mask, weight, out, N, F, K, apart, scale, SOME: tl.constexpr, ROWS: tl.constexpr,
           IN: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    place, known = _rows(N, F, ROWS, IN)
    h = _dropped(x, mask, place, known, N, F, apart, SOME, ROWS)
    i, o = tl.arange(0, IN)[:, None], tl.arange(0, OUT)[None, :]
    own = weight + tl.program_id(1).to(tl.int64) * F * K
    W = tl.load(own + i * K + o, mask=(i < F) & (o < K), other=0.0)
    place, known = _rows(N, K, ROWS, OUT)
    v = scale * tl.dot(h, W, input_precision=PRECISION)
    tl.store(_first(out, N, K, ROWS) + place, v, mask=known)


@triton.jit
def _times_backward(grad, x, mask, weight, dx, partial, N, F, K, apart, scale, SOME: tl.constexpr,
                    ROWS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
                    PRECISION: tl.constexpr):  # fmt: skip
    """Writes the gradient of x and, for the weight, sums over the rows of a program."""
    place, known = _rows(N, K, ROWS, OUT)
    g = scale * tl.load(_first(grad, N, K, ROWS) + place, mask=known, other=0.0)
    i, o = tl.arange(0, IN)[:, None], tl.arange(0, OUT)[None, :]
    some, within = (i < F) & (o < K), i * K + o
    W = tl.load(weight + tl.program_id(1).to(tl.int64) * F * K + within, mask=some, other=0.0)
    place, known = _rows(N, F, ROWS, IN)
    h = _dropped(x, mask, place, known, N, F, apart, SOME, ROWS)
    own = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * F * K
    dW = tl.dot(tl.trans(h), g, input_precision=PRECISION)
    tl.store(partial + own + within, dW, mask=some)
    back = tl.dot(g, tl.trans(W), input_precision=PRECISION)
    tl.store(_first(dx, N, F, ROWS) + place, tl.where(h <= 0, 0.0, back), mask=known)


class ReluDropoutTimes(torch.autograd.Function):
    """Computes scale · (relu(x) ⊙ mask) @ weight; where relu(x) ⊙ mask is 0, so is its gradient.

    Shapes: x (S, N, C_in), mask boolean of this shape or None, weight (S, C_in, C_out) ->
    (S, N, C_out).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor | None, weight: Tensor, scale: float) -> Tensor:
        (S, N, F), K = x.shape, weight.shape[-1]
        if mask is not None and not mask[0].is_contiguous():
            mask = mask.contiguous()
        ctx.save_for_backward(x, mask, weight)
        x, weight = x.contiguous(), weight.contiguous()
        ctx.scale, ctx.precision, out = scale, precision(), x.new_empty(S, N, K)
        apart, some = (0, False) if mask is None else (mask.stride(0), True)
        given = x, x if mask is None else mask, weight, out, N, F, K, apart, scale, some
        shape = ROWS, _width(F), _width(K), ctx.precision
        _times[triton.cdiv(N, ROWS), S](*given, *shape, num_warps=WARPS[ctx.precision])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, None]:
        x, mask, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(ctx.scale * grad, x, mask, weight)
        x, weight = x.contiguous(), weight.contiguous()
        (S, N, F), K, blocks = x.shape, weight.shape[-1], triton.cdiv(x.shape[1], ROWS)
        dx, partial = torch.empty_like(x), x.new_empty(S, blocks, F, K)
        given = grad.contiguous(), x, x if mask is None else mask, weight, dx, partial
        apart, some = (0, False) if mask is None else (mask.stride(0), True)
        shape = N, F, K, apart, ctx.scale, some, ROWS, _width(F), _width(K), ctx.precision
        _times_backward[blocks, S](*given, *shape, num_warps=WARPS[ctx.precision])
        return dx, None, partial.sum(dim=1), None


def _differentiable(
    grad: Tensor, x: Tensor, mask: Tensor | None, weight: Tensor
) -> tuple[Tensor, None, Tensor, None]:
    """Computes the gradients by torch, for second derivatives."""
    h = x.relu() if mask is None else x.relu() * mask
    return grad @ weight.mT * (h > 0), None, h.mT @ grad, None
