"""One averaging step of PAR on a GPU, which reads every affinity once for all class maps.

The module imports Triton, which comes with torch for CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 128  # of one program
MAPS = 8  # class maps of one program


@triton.jit
def _average(
    x,
    affinity,
    shift,
    out,
    K,
    H,
    W,
    NEIGHBOURS: tl.constexpr,
    MAPS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Writes out[k, p] = Σ_n affinity[n, p] x[k, p + shift_n] for some maps of an image."""
    image, N = tl.program_id(2), H * W
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    k = tl.program_id(1) * MAPS + tl.arange(0, MAPS)
    row, column, inside = pixel // W, pixel % W, pixel < N
    place = (image * K + k)[:, None] * N
    known = (k < K)[:, None] & inside[None, :]
    total = tl.zeros((MAPS, PIXELS), dtype=tl.float32)
    for n in range(NEIGHBOURS):
        y, x_shift = tl.load(shift + 2 * n), tl.load(shift + 2 * n + 1)
        near_row = tl.minimum(tl.maximum(row + y, 0), H - 1)
        near_column = tl.minimum(tl.maximum(column + x_shift, 0), W - 1)
        weight = tl.load(affinity + (image * NEIGHBOURS + n) * N + pixel, mask=inside, other=0.0)
        near = tl.load(x + place + (near_row * W + near_column)[None, :], mask=known, other=0.0)
        total += weight.to(tl.float32)[None, :] * near.to(tl.float32)
    tl.store(out + place + pixel[None, :], total, mask=known)


def averaged(x: Tensor, affinity: Tensor, shift: Tensor) -> Tensor:
    """Averages class maps over the neighbours of every pixel; borders are replicated.

    Args:
        x: class maps.
        affinity: weights of the neighbours.
        shift: rows and columns to each neighbour, int32.

    Shapes: x (B, K, H, W), affinity (B, n, H, W), shift (n, 2) -> (B, K, H, W).
    """
    B, K, H, W = x.shape
    x, affinity = x.contiguous(), affinity.contiguous()
    out = torch.empty_like(x)
    grid = (triton.cdiv(H * W, PIXELS), triton.cdiv(K, MAPS), B)
    _average[grid](x, affinity, shift, out, K, H, W, len(shift), MAPS, PIXELS)
    return out
