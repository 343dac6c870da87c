"""ContraNorm's average over non-neighbours, without an N×N matrix.

.. math:: (P x)_i = \\sum_j E_{ij} x_j / \\sum_j E_{ij}, \\quad E_{ij} = \\exp(x̂_i · x̂_j / τ)

over the nodes j that are neither i nor its neighbours. A node without non-neighbours gets 0. Time
is quadratic in N, or linear with a subset of the nodes. Memory is linear, also in the backward
pass, which computes E again; on a GPU with Triton each pair also has a bit.

E is computed as a power of 2, which takes half the time of ``exp`` on a CPU. The sums over tiles
are operators of ``torch.library``, so ``torch.compile`` takes each as a whole.
"""

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import register_flop_formula

from oversmoothing.aggregators.checks import takes_kernels
from oversmoothing.aggregators.neighbours import Neighbours

SHARP = 0.025  # below this temperature exp(1/τ)² nears the largest float32: rows are shifted
SHARP_IN_BF16 = 0.1  # below this one, 8 bits of x̂·x̂/τ make E wrong by more than 4 %
EPS = 1e-12  # norm below which a token has no direction, as in F.normalize
CELLS = 2**18  # entries of a strip
MIN_ROWS = 16
NARROW = 64  # channels up to which a program of a GPU holds a tile
FEW = 2**16  # nodes whose pairs take at most 512 MiB as bits


def unit(x: Tensor) -> Tensor:
    """Returns x / ‖x‖, and 0 for 0, where F.normalize has gradients 1e12 times as large, here 0.

    In float16 EPS would be 0, and squares could overflow. Shapes: (..., N, C) -> (..., N, C).
    """
    wide = x.float() if x.dtype == torch.float16 else x
    norms = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / norms.masked_fill(norms < EPS, torch.inf)).to(x.dtype)


def average(
    x: Tensor,
    neighbours: Neighbours | None,
    temperature: float,
    dual: bool = False,
    chosen: Tensor | None = None,
) -> Tensor:
    """Computes P x, or (P + Pᵀ) x.

    Args:
        x: nodes, (..., N, C).
        neighbours: pairs that are not compared; None: compare all.
        temperature: τ.
        dual: add Pᵀ x; only if all nodes are compared.
        chosen: indices of the nodes to compare with; None: all.

    Shapes: -> (..., N, C).
    """
    if not x.numel():
        return torch.zeros_like(x)
    with torch.autocast(x.device.type, enabled=False):
        values = x.float() if x.element_size() < 4 else x
        q = unit(values) * (math.log2(math.e) / temperature) ** 0.5
        if chosen is None and neighbours is not None and temperature >= SHARP:
            return _by_tiles(q, values, neighbours, dual, _in_bf16(values, temperature)).to(x.dtype)
        return _by_strips(q, values, neighbours, dual, chosen).to(x.dtype)


def _by_tiles(q: Tensor, x: Tensor, neighbours: Neighbours, dual: bool, bf16: bool) -> Tensor:
    """Computes E tile by tile, each tile once for its rows and its columns."""
    *_, N, C = shape = x.shape
    q, x = q.reshape(-1, N, C), x.reshape(-1, N, C)
    sums, totals = _summed(q, x, neighbours, bf16)
    shares = _inverse(totals)[..., None]
    out = shares * sums
    if dual:
        out = out + _summed(q, shares * x, neighbours, bf16, reverse=True)[0]
    return out.view(shape)


def _summed(
    q: Tensor, u: Tensor, neighbours: Neighbours, bf16: bool, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns E u and the sums of E, (B, N, C) and (B, N); of the reversed pairs if ``reverse``."""
    *_, N, C = u.shape
    if takes_kernels(u) and max(q.shape[-1], C) <= NARROW and N <= FEW and neighbours.symmetric:
        from oversmoothing.aggregators.kernels.contranorm import Sums

        return Sums.apply(q, u, neighbours.bits)
    skipped, bounds, size = neighbours.tiles_bf16 if bf16 else neighbours.tiles
    return kernel_sums(q, u, skipped, bounds.flip(0) if reverse else bounds, size, bf16)


def _in_bf16(x: Tensor, temperature: float) -> bool:
    """Returns whether float32 products may be in bfloat16 without large errors of E.

    ``torch.compile`` cannot trace this check.
    """
    if torch.compiler.is_compiling() or torch.get_float32_matmul_precision() != "medium":
        return False
    return x.dtype == torch.float32 and temperature >= SHARP_IN_BF16


def _by_strips(
    q: Tensor, x: Tensor, neighbours: Neighbours | None, dual: bool, chosen: Tensor | None
) -> Tensor:
    """Computes E strip by strip of rows; each row is shifted by its maximum."""
    keys, values = (q, x) if chosen is None else (q[..., chosen, :], x[..., chosen, :])
    size = max(MIN_ROWS, CELLS // keys.shape[-2])
    skipped = repeat(None) if neighbours is None else neighbours.strips(size, chosen)
    strips = [
        checkpoint(_strip, *own, keys, values, dual, use_reentrant=False, preserve_rng_state=False)
        for own in zip(q.split(size, -2), x.split(size, -2), skipped)
    ]
    out = torch.cat([rows for rows, _ in strips], dim=-2)
    if not dual:
        return out
    return out + reduce(torch.add, (column for _, column in strips if column is not None))


def _strip(
    q: Tensor, x: Tensor, skipped: Tensor | None, keys: Tensor, values: Tensor, dual: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns the rows (..., R, C) of P x and, if ``dual``, what they add to Pᵀ x (..., K, C)."""
    E = q @ keys.mT
    with torch.no_grad():  # where E is 0, so is its gradient
        if skipped is not None:
            E.flatten(-2).index_fill_(-1, skipped, -torch.inf)
        highest = E.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(E.dtype).min)
    E = E.sub_(highest).exp2_()
    share = _inverse(E.sum(dim=-1, keepdim=True))
    return share * (E @ values), E.mT @ (share * x) if dual else None


def _inverse(totals: Tensor) -> Tensor:
    """Returns 1 / totals, and 0 where totals are 0."""
    some = totals > 0
    return some / totals.where(some, 1)


@torch.library.custom_op("oversmoothing::kernel_sums", mutates_args=())
def kernel_sums(
    q: Tensor, u: Tensor, skipped: Tensor, bounds: Tensor, tile: int, bf16: bool = False
) -> tuple[Tensor, Tensor]:
    """Computes z_i = Σ_j E_ij u_j and t_i = Σ_j E_ij, with E_ij = 2^(q_i·q_j), tile by tile.

    Exponents are symmetric, so each tile is computed once and serves its rows and its columns.
    In bfloat16 the tiles have 8 bits; sums over tiles are wider.

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
        for i, j, E, R in _tiles(q[b].split(tile), skipped, bounds):
            _add(z_[i], E, u_[j])
            t_[i].add_(E.sum(dim=1))
            if i != j:
                _add(z_[j], R.mT, u_[i])
                t_[j].add_(R.sum(dim=0))
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
        for i, j, E, R in _tiles(q_, skipped, bounds):
            dS = _to_exponents(E, R, rows_[i], columns_[j])
            _add(dq_[i], dS, q_[j])
            _add(du_[i], R, dz_[j])
            if i != j:
                _add(dq_[j], dS.mT, q_[i])
                _add(du_[j], E.mT, dz_[i])
    return dq.mul_(math.log(2)), du


def _tiles(
    q: Sequence[Tensor], skipped: Tensor, bounds: Tensor
) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Yields row, column, E and the mirrored E, called R, of each tile on or above the diagonal.

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


def _to_exponents(E: Tensor, R: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Returns the gradient with respect to the exponents of a tile, divided by ln 2.

    Args:
        E, R: the tile and the mirrored tile.
        rows: gradients and values of its rows, side by side.
        columns: values and gradients of its columns, side by side.
    """
    if E.data_ptr() == R.data_ptr():
        return (rows @ columns.mT).mul_(E)
    row_grads, row_values = rows.tensor_split(2, dim=1)
    column_values, column_grads = columns.tensor_split(2, dim=1)
    return (row_grads @ column_values.mT).mul_(E).add_((row_values @ column_grads.mT).mul_(R))


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
