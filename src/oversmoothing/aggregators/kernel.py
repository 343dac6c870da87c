"""Sums over pairs of nodes, tile by tile: memory is linear in the number of nodes.

.. math:: z_i = \\sum_j E_{ij} u_j, \\quad t_i = \\sum_j E_{ij}, \\quad E_{ij} = 2^{q_i \\cdot q_j},

where pairs of neighbours are left out. Exponents are symmetric, so each tile is computed once and
serves its rows and its columns. The backward pass computes the tiles again. Powers of 2 take half
the time of ``exp`` on a CPU. In bfloat16 the tiles have 8 bits; sums over tiles are wider.

These are operators of ``torch.library``, so ``torch.compile`` takes each as a whole.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

Tile = tuple[int, int, Tensor, Tensor]  # row, column, E and the mirrored E


@torch.library.custom_op("oversmoothing::kernel_sums", mutates_args=())
def kernel_sums(
    q: Tensor, u: Tensor, skipped: Tensor, bounds: Tensor, tile: int, bf16: bool = False
) -> tuple[Tensor, Tensor]:
    """Computes z and t.

    Args:
        q: points, (B, N, D).
        u: values, (B, N, C).
        skipped: the pairs to leave out, as flat indices inside their tiles, ordered by tile.
        bounds: offsets of the tiles into ``skipped``, on the CPU, (1, tiles + 1). If the pairs are
            not symmetric, (2, tiles + 1): the second row is for the reversed pairs.
        tile: side of a tile.
        bf16: compute tiles, and products with them, in bfloat16.

    Shapes: -> z (B, N, C), t (B, N).
    """
    z, t = torch.zeros_like(u), u.new_zeros(u.shape[:-1])
    q, u = _narrowed(bf16, q, u)
    for b in range(len(q)):
        u_, z_, t_ = (x[b].split(tile) for x in (u, z, t))
        for i, j, E, F in _tiles(q[b].split(tile), skipped, bounds):
            _add(z_[i], E, u_[j])
            t_[i].add_(E.sum(dim=1))
            if i != j:
                _add(z_[j], F.mT, u_[i])
                t_[j].add_(F.sum(dim=0))
    return z, t


@torch.library.custom_op("oversmoothing::kernel_sums_backward", mutates_args=())
def kernel_sums_backward(
    dz: Tensor,
    dt: Tensor,
    q: Tensor,
    u: Tensor,
    skipped: Tensor,
    bounds: Tensor,
    tile: int,
    bf16: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes the gradients with respect to q and u."""
    dq, du = torch.zeros_like(q), torch.zeros_like(u)
    one = torch.ones_like(dt)[..., None]
    grads = torch.cat([dz, dt[..., None]], dim=-1)
    values = torch.cat([u, one], dim=-1)  # dE_ij = grads_i · values_j
    rows = torch.cat([grads, values], dim=-1)
    columns = torch.cat([values, grads], dim=-1)
    q, dz, rows, columns = _narrowed(bf16, q, dz, rows, columns)
    for b in range(len(q)):
        tensors = (q, dz, rows, columns, dq, du)
        q_, dz_, rows_, columns_, dq_, du_ = (x[b].split(tile) for x in tensors)
        for i, j, E, F in _tiles(q_, skipped, bounds):
            dS = _to_exponents(E, F, rows_[i], columns_[j])
            _add(dq_[i], dS, q_[j])
            _add(du_[i], F, dz_[j])
            if i != j:
                _add(dq_[j], dS.mT, q_[i])
                _add(du_[j], E.mT, dz_[i])
    return dq.mul_(math.log(2)), du


def _tiles(q: Sequence[Tensor], skipped: Tensor, bounds: Tensor) -> Iterator[Tile]:
    """Yields row, column, E and the mirrored E of each tile on or above the diagonal.

    Entry (a, b) of the mirrored E belongs to the pair (b, a). It differs from E only in the pairs
    that are left out. All tiles share one buffer, so a tile is valid until the next one.
    """
    room = q[0].new_empty(len(q[0]) ** 2)
    pieces = [iter(skipped[own[0] : own[-1]].split(own.diff().tolist())) for own in bounds]
    for i, rows in enumerate(q):
        for j, columns in enumerate(q[i:], start=i):
            size = (len(rows), len(columns))
            E = room[: size[0] * size[1]]
            torch.mm(rows, columns.mT, out=E.view(size)).exp2_()
            both = [E, *(E.clone() for _ in pieces[1:])]
            for entries, piece in zip(both, pieces):
                entries.index_fill_(0, next(piece), 0)
            yield i, j, both[0].view(size), both[-1].view(size)


def _to_exponents(E: Tensor, F: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Returns the gradient with respect to the exponents of a tile, divided by ln 2.

    Args:
        E, F: the tile and the mirrored tile.
        rows: gradients and values of its rows, side by side.
        columns: values and gradients of its columns, side by side.
    """
    if E.data_ptr() == F.data_ptr():
        return (rows @ columns.mT).mul_(E)
    row_grads, row_values = rows.tensor_split(2, dim=1)
    column_values, column_grads = columns.tensor_split(2, dim=1)
    return (row_grads @ column_values.mT).mul_(E).add_((row_values @ column_grads.mT).mul_(F))


def _narrowed(bf16: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.bfloat16() for tensor in tensors) if bf16 else tensors


def _add(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Adds a product to a total of the same or a wider type."""
    total.addmm_(a, b) if total.dtype == a.dtype else total.add_(a @ b)


@kernel_sums.register_fake
def _(q: Tensor, u: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(u), u.new_empty(u.shape[:-1])


@kernel_sums_backward.register_fake
def _(dz: Tensor, dt: Tensor, q: Tensor, u: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(u)


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.tile, ctx.bf16 = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, dz: Tensor, dt: Tensor) -> tuple[Tensor | None, ...]:
    with torch.autocast(dz.device.type, enabled=False):
        dq, du = kernel_sums_backward(dz.contiguous(), dt, *ctx.saved_tensors, ctx.tile, ctx.bf16)
    return dq, du, None, None, None, None


kernel_sums.register_autograd(_backward, setup_context=_save)


@register_flop_formula(torch.ops.oversmoothing.kernel_sums)
def _(q: Sequence[int], u: Sequence[int], *_: object, **__: object) -> int:
    """Counts each exponent once, and its products with the rows and the columns of u."""
    B, N, D = q
    return B * N**2 * (D + 2 * u[-1])


@register_flop_formula(torch.ops.oversmoothing.kernel_sums_backward)
def _(
    dz: Sequence[int],
    dt: Sequence[int],
    q: Sequence[int],
    u: Sequence[int],
    *_: object,
    **__: object,
) -> int:
    """Counts the exponents, their gradient, and the products with both."""
    B, N, D = q
    return B * N**2 * (3 * D + 4 * u[-1] + 2)
