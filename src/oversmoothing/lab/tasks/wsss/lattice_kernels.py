"""The permutohedral lattice on a GPU: its neighbours, and its filter; see ``lattice.py``.

A lattice of fixed size has room for all vertices of all points, of which most are the same. These
kernels read from the GPU how many lattice points there are, and leave the rest of the room alone.
The module imports Triton, which comes with torch for CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64  # lattice points or points of one program at a time, or fewer
CELLS = 2048  # numbers of one program at a time; with more, a thread runs out of registers
ENTRIES = 16  # of a sum
PROGRAMS = 2048


@triton.jit
def _find(lattice, target, known, used, none, STEPS: tl.constexpr):
    """Returns the places of numbers among the sorted lattice points, or ``none``."""
    low, high = tl.zeros_like(target), tl.zeros_like(target) + used
    for _ in range(STEPS):
        middle = (low + high) // 2
        lower = tl.load(lattice + middle, mask=known & (middle < used), other=0) < target
        open_ = low < high
        low = tl.where(open_ & lower, middle + 1, low)
        high = tl.where(open_ & (lower == 0), middle, high)
    found = tl.load(lattice + low, mask=known & (low < used), other=-1) == target
    return tl.where(found, low, none).to(tl.int32)


@triton.jit
def _neighbours(lattice, steps, count, out, none, STEPS: tl.constexpr, ROWS: tl.constexpr):
    used, axis = tl.load(count), tl.program_id(1)
    step = tl.load(steps + axis)
    own = out + axis.to(tl.int64) * 2 * (none + 1)
    for first in range(tl.program_id(0) * ROWS, used, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        known = row < used
        key = tl.load(lattice + row, mask=known, other=0)
        after = _find(lattice, key + step, known, used, none, STEPS)
        before = _find(lattice, key - step, known, used, none, STEPS)
        tl.store(own + 2 * row, after, mask=known)
        tl.store(own + 2 * row + 1, before, mask=known)


def neighbours(lattice: Tensor, steps: Tensor, count: Tensor) -> Tensor:
    """Finds the next and the previous lattice point of each along every axis.

    Args:
        lattice: sorted numbers of the lattice points, (n,), of which the first ``count`` are used.
        steps: differences of numbers along the axes, (A,).
        count: (1,).

    Shapes: -> (A, n + 1, 2), int32; n where there is no neighbour.
    """
    n, A = len(lattice), len(steps)
    out = torch.empty(A, n + 1, 2, dtype=torch.int32, device=lattice.device)
    _neighbours[PROGRAMS, A](lattice, steps, count, out, n, n.bit_length() + 1, ROWS, num_warps=2)
    return out


@triton.jit
def _splat(x, point, weight, start, count, out, entries, last, C, ENTRIES: tl.constexpr,
           WIDTH: tl.constexpr):  # fmt: skip
    """Writes weighted sums of points for the lattice points, and zeros in the last row."""
    used, c = tl.load(count), tl.arange(0, WIDTH)
    for row in range(tl.program_id(0), used, tl.num_programs(0)):
        total = tl.zeros((WIDTH,), dtype=tl.float32)
        first, end = (
            tl.load(start + row),
            tl.load(start + row + 1, mask=row + 1 < used, other=entries),
        )
        for at in range(first, end, ENTRIES):
            k = at + tl.arange(0, ENTRIES)
            own = tl.load(point + k, mask=k < end, other=0)
            known = (k < end)[:, None] & (c < C)[None, :]
            near = tl.load(x + own[:, None] * C + c[None, :], mask=known, other=0.0)
            total += tl.sum(tl.load(weight + k, mask=k < end, other=0.0)[:, None] * near, axis=0)
        tl.store(out + row * C + c, total, mask=c < C)
    if tl.program_id(0) == 0:
        tl.store(out + last + c, tl.zeros((WIDTH,), dtype=tl.float32), mask=c < C)


@triton.jit
def _blur(x, near, count, out, last, C, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Writes x + ½ (next + previous) for the lattice points, and zeros in the last row."""
    used, c = tl.load(count), tl.arange(0, WIDTH)[None, :]
    for first in range(tl.program_id(0) * ROWS, used, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        known = (row < used)[:, None] & (c < C)
        total = tl.load(x + row.to(tl.int64)[:, None] * C + c, mask=known, other=0.0)
        for side in tl.static_range(2):
            beside = tl.load(near + 2 * row + side, mask=row < used, other=0).to(tl.int64)
            total += 0.5 * tl.load(x + beside[:, None] * C + c, mask=known, other=0.0)
        tl.store(out + row.to(tl.int64)[:, None] * C + c, total, mask=known)
    if tl.program_id(0) == 0:
        tl.store(out + last + c, tl.zeros((1, WIDTH), dtype=tl.float32), mask=c < C)


@triton.jit
def _slice(x, vertex, weight, out, points, C, VERTICES: tl.constexpr, ROWS: tl.constexpr,
           WIDTH: tl.constexpr):  # fmt: skip
    """Writes weighted sums of the vertices around every point."""
    row, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)[None, :]
    known = (row < points)[:, None] & (c < C)
    total = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    for k in tl.static_range(VERTICES):
        own = tl.load(vertex + row * VERTICES + k, mask=row < points, other=0)
        share = tl.load(weight + row * VERTICES + k, mask=row < points, other=0.0)
        total += share[:, None] * tl.load(x + own[:, None] * C + c, mask=known, other=0.0)
    tl.store(out + row.to(tl.int64)[:, None] * C + c, total, mask=known)


def filtered(
    values: Tensor,
    splat: tuple[Tensor, Tensor, Tensor],
    near: Tensor,
    count: Tensor,
    vertex: Tensor,
    weight: Tensor,
) -> Tensor:
    """Splats, blurs and slices.

    Args:
        values: of the points, float32, (N, C).
        splat: points and weights of all lattice points, (m,) each, and where each begins, (n,).
        near: what ``neighbours`` returns, for n lattice points.
        count: how many lattice points are used, (1,).
        vertex, weight: of the points, (N, D + 1).

    Shapes: -> (N, C).
    """
    (N, C), room, values = values.shape, near.shape[1], values.contiguous()
    width, vertices = max(16, triton.next_power_of_2(C)), vertex.shape[1]
    nodes, blurred = values.new_empty(2, room, C)
    m, last, rows = len(splat[0]), (room - 1) * C, max(1, min(ROWS, CELLS // width))
    _splat[2 * PROGRAMS,](values, *splat, count, nodes, m, last, C, ENTRIES, width, num_warps=1)
    for axis in near:
        _blur[PROGRAMS,](nodes, axis, count, blurred, last, C, rows, width)
        nodes, blurred = blurred, nodes
    out = torch.empty_like(values)
    grid = (triton.cdiv(N, rows),)
    _slice[grid](nodes, vertex, weight, out, N, C, vertices, rows, width)
    return out
