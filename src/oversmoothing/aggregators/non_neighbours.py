"""ContraNorm's average over non-neighbours, without an N×N matrix.

.. math:: (P x)_i = \\sum_j E_{ij} x_j / \\sum_j E_{ij}, \\quad E_{ij} = \\exp(x̂_i · x̂_j / τ)

over the nodes j that are neither i nor its neighbours. A node without non-neighbours gets 0. Time
is quadratic in N, or linear with a subset of the nodes. Memory is linear, also in the backward
pass, which computes E again.
"""

import math
from functools import reduce
from itertools import repeat

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from oversmoothing.aggregators.kernel import kernel_sums
from oversmoothing.aggregators.neighbours import Neighbours

SHARP = 0.025  # below this temperature exp(1/τ)² nears the largest float32: rows are shifted
SHARP_IN_BF16 = 0.1  # below this one, 8 bits of x̂·x̂/τ make E wrong by more than 4 %
CELLS = 2**18  # entries of a strip
MIN_ROWS = 16


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
        q = F.normalize(values, dim=-1) * (math.log2(math.e) / temperature) ** 0.5
        if chosen is None and neighbours is not None and temperature >= SHARP:
            return _by_tiles(q, values, neighbours, dual, _in_bf16(values, temperature)).to(x.dtype)
        return _by_strips(q, values, neighbours, dual, chosen).to(x.dtype)


def _by_tiles(q: Tensor, x: Tensor, neighbours: Neighbours, dual: bool, bf16: bool) -> Tensor:
    """Computes E tile by tile, each tile once for its rows and its columns."""
    *_, N, C = shape = x.shape
    q, x = q.reshape(-1, N, C), x.reshape(-1, N, C)
    skipped, bounds, size = neighbours.tiles_bf16 if bf16 else neighbours.tiles
    sums, totals = kernel_sums(q, x, skipped, bounds, size, bf16)
    shares = _inverse(totals)[..., None]
    out = shares * sums
    if dual:
        out = out + kernel_sums(q, shares * x, skipped, bounds.flip(0), size, bf16)[0]
    return out.view(shape)


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
