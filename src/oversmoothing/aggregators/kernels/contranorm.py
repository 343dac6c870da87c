r"""The sums of ContraNorm's average on a GPU, where E never leaves a program's registers.

.. math:: z_i = \sum_j E_{ij} u_j, \quad t_i = \sum_j E_{ij}, \quad E_{ij} = 2^{q_i · q_j}

without the pairs of a symmetric set, of which each has one bit. The module imports Triton, which
comes with torch for CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from oversmoothing.aggregators.checks import differentiable_once

ROWS, COLUMNS = 64, 32  # of one tile


@triton.jit
def _nodes(x, number, N, C, WIDTH: tl.constexpr):
    """Loads nodes of this program's network, (number, WIDTH), with zeros where there are none."""
    c, own = tl.arange(0, WIDTH), x + tl.program_id(1).to(tl.int64) * N * C
    known = (number < N)[:, None] & (c < C)[None, :]
    return tl.load(own + number[:, None] * C + c[None, :], mask=known, other=0.0)


@triton.jit
def _put(x, number, value, N, C, WIDTH: tl.constexpr):
    c, own = tl.arange(0, WIDTH), x + tl.program_id(1).to(tl.int64) * N * C
    known = (number < N)[:, None] & (c < C)[None, :]
    tl.store(own + number[:, None] * C + c[None, :], value, mask=known)


@triton.jit
def _tile(q_i, q_j, bits, i, j, N, WORDS, PRECISION: tl.constexpr):
    """Returns E of a tile, with zeros at the pairs that are left out and where there is no node."""
    known = (i < N)[:, None] & (j < N)[None, :]
    word = tl.load(bits + i[:, None] * WORDS + (j // 32)[None, :], mask=known, other=-1)
    kept = ((word >> (j % 32)[None, :]) & 1) == 0
    return tl.where(kept, tl.exp2(tl.dot(q_i, tl.trans(q_j), input_precision=PRECISION)), 0.0)


@triton.jit
def _sums(q, u, bits, z, t, N, D, C, WORDS, Q: tl.constexpr, U: tl.constexpr, ROWS: tl.constexpr,
          COLUMNS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    q_i = _nodes(q, i, N, D, Q)
    sums, total = tl.zeros((ROWS, U), dtype=tl.float32), tl.zeros((ROWS,), dtype=tl.float32)
    for first in range(0, N, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        E = _tile(q_i, _nodes(q, j, N, D, Q), bits, i, j, N, WORDS, PRECISION)
        sums += tl.dot(E, _nodes(u, j, N, C, U), input_precision=PRECISION)
        total += tl.sum(E, axis=1)
    _put(z, i, sums, N, C, U)
    tl.store(t + tl.program_id(1).to(tl.int64) * N + i, total, mask=i < N)


@triton.jit
def _sums_backward(dz, dt, q, u, bits, dq, du, N, D, C, WORDS, Q: tl.constexpr, U: tl.constexpr,
                   ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                   PRECISION: tl.constexpr):  # fmt: skip
    """dE_ij = dz_i · u_j + dt_i; exponents are symmetric, so q_i gets dS_ij + dS_ji, dS = E dE."""
    i, network = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64) * N
    q_i, u_i, dz_i = _nodes(q, i, N, D, Q), _nodes(u, i, N, C, U), _nodes(dz, i, N, C, U)
    dt_i = tl.load(dt + network + i, mask=i < N, other=0.0)
    dq_i = tl.zeros((ROWS, Q), dtype=tl.float32)
    du_i = tl.zeros((ROWS, U), dtype=tl.float32)
    for first in range(0, N, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        q_j, u_j, dz_j = _nodes(q, j, N, D, Q), _nodes(u, j, N, C, U), _nodes(dz, j, N, C, U)
        E = _tile(q_i, q_j, bits, i, j, N, WORDS, PRECISION)
        du_i += tl.dot(E, dz_j, input_precision=PRECISION)
        dE = tl.dot(dz_i, tl.trans(u_j), input_precision=PRECISION)
        dE += tl.dot(u_i, tl.trans(dz_j), input_precision=PRECISION)
        dE += dt_i[:, None] + tl.load(dt + network + j, mask=j < N, other=0.0)[None, :]
        dq_i += tl.dot(E * dE, q_j, input_precision=PRECISION)
    _put(dq, i, dq_i * 0.6931471805599453, N, D, Q)
    _put(du, i, du_i, N, C, U)


def _launched(kernel, tensors, q: Tensor, u: Tensor, bits: Tensor) -> None:
    (B, N, D), C = q.shape, u.shape[-1]
    exact = torch.get_float32_matmul_precision() == "highest"
    widths = (max(16, triton.next_power_of_2(width)) for width in (D, C))
    grid = triton.cdiv(N, ROWS), B
    shape = N, D, C, bits.shape[1], *widths, ROWS, COLUMNS
    kernel[grid](*tensors, *shape, "ieee" if exact else "tf32", num_stages=1)  # 2: 2.5 times slower


class Sums(torch.autograd.Function):
    """Computes z and t, see the module; gradients compute E again.

    Shapes: q (B, N, D), u (B, N, C), bits (N, ⌈N/32⌉) -> z (B, N, C), t (B, N).
    """

    @staticmethod
    def forward(ctx, q: Tensor, u: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
        q, u = q.contiguous(), u.contiguous()
        z, t = torch.empty_like(u), u.new_empty(u.shape[:-1])
        ctx.save_for_backward(q, u, bits)
        _launched(_sums, (q, u, bits, z, t), q, u, bits)
        return z, t

    @staticmethod
    @differentiable_once
    def backward(ctx, dz: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, None]:
        q, u, bits = ctx.saved_tensors
        dq, du = torch.empty_like(q), torch.empty_like(u)
        given = dz.contiguous(), dt.contiguous(), q, u, bits, dq, du
        _launched(_sums_backward, given, q, u, bits)
        return dq, du, None
