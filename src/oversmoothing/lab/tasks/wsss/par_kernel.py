"""PAR (``par.py``) on a GPU: affinities in one kernel, each averaging step in one for all maps.

The module imports Triton, which comes with torch for CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 128  # of one program
MAPS = 8  # class maps of one program
TOGETHER = 8  # neighbours; the number of neighbours is a multiple of it


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
    TOGETHER: tl.constexpr,
    MAPS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Writes out[k, p] = Σ_n affinity[n, p] x[k, p + shift_n] for some maps of an image."""
    image, N = tl.program_id(2).to(tl.int64), H * W
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    k = tl.program_id(1) * MAPS + tl.arange(0, MAPS)
    row, column, inside = pixel // W, pixel % W, pixel < N
    place = (image * K + k)[:, None] * N
    known = (k < K)[:, None] & inside[None, :]
    total = tl.zeros((MAPS, PIXELS), dtype=tl.float32)
    for first in range(0, NEIGHBOURS, TOGETHER):
        for n in tl.static_range(TOGETHER):  # unrolled, so that loads do not wait for each other
            y, x_shift = tl.load(shift + 2 * (first + n)), tl.load(shift + 2 * (first + n) + 1)
            near_row = tl.minimum(tl.maximum(row + y, 0), H - 1)
            near_column = tl.minimum(tl.maximum(column + x_shift, 0), W - 1)
            from_pixel = affinity + (image * NEIGHBOURS + first + n) * N + pixel
            weight = tl.load(from_pixel, mask=inside, other=0.0)
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
    _average[grid](x, affinity, shift, out, K, H, W, len(shift), TOGETHER, MAPS, PIXELS)
    return out


@triton.jit
def _colours(image, channel, near, exists, N):
    """Returns a channel at the neighbours of some pixels, (neighbours, pixels)."""
    return tl.load(image + channel * N + near, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def _add_channel(logits, image, channel, near, exists, pixel, inside, N, number, width, eps):
    """Subtracts (ΔI / (σ w))² of a channel from the logits, with σ over the neighbours."""
    colour = _colours(image, channel, near, exists, N)
    mean = tl.sum(colour, axis=0) / number
    apart = tl.where(exists, colour - mean[None, :], 0.0)
    deviation = tl.sqrt(tl.sum(apart * apart, axis=0) / (number - 1))
    centre = tl.load(image + channel * N + pixel, mask=inside, other=0.0).to(tl.float32)
    scaled = (colour - centre[None, :]) / (width * (deviation + eps))[None, :]
    return logits - scaled * scaled


@triton.jit
def _affinity(images, shift, position, out, number, H, W, width, eps, share,
              MOST: tl.constexpr, PIXELS: tl.constexpr):  # fmt: skip
    """Writes share · softmax_n(−Σ_c (ΔI / (σ_c w))²) + position_n for some pixels."""
    N, n = H * W, tl.arange(0, MOST)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside, real = pixel < N, n < number
    y = pixel // W + tl.load(shift + 2 * n, mask=real, other=0)[:, None]
    x = pixel % W + tl.load(shift + 2 * n + 1, mask=real, other=0)[:, None]
    y, x = tl.minimum(tl.maximum(y, 0), H - 1), tl.minimum(tl.maximum(x, 0), W - 1)
    exists, b = real[:, None] & inside[None, :], tl.program_id(1).to(tl.int64)
    logits = tl.zeros((MOST, PIXELS), dtype=tl.float32)
    for c in tl.static_range(3):
        logits = _add_channel(
            logits, images + b * 3 * N, c, y * W + x, exists, pixel, inside, N, number, width, eps
        )
    logits = tl.where(real[:, None], logits, -float("inf"))
    weight = tl.exp(logits - tl.max(logits, axis=0)[None, :])
    weight = weight * (share / tl.sum(weight, axis=0))[None, :]
    weight += tl.load(position + n, mask=real, other=0.0)[:, None]
    place = (b * number + n)[:, None] * N + pixel[None, :]
    tl.store(out + place, weight, mask=exists)


def affinities(
    images: Tensor, shift: Tensor, position: Tensor, width: float, eps: float, share: float
) -> Tensor:
    """Computes the weights of the neighbours; borders are replicated.

    Args:
        images: with three channels.
        shift: rows and columns to each neighbour, int32.
        position: what the distances add to the weights, float32.
        width: √3 w of the formula.
        eps: added to the deviations.
        share: sum of the weights by colour.

    Shapes: images (B, 3, H, W), shift (n, 2), position (n,) -> (B, n, H, W), float32.
    """
    (B, _, H, W), n = images.shape, len(shift)
    out, most = images.new_empty(B, n, H, W), triton.next_power_of_2(n)
    pixels = max(1, min(32, 2048 // most))  # with more cells, a thread runs out of registers
    grid, images = (triton.cdiv(H * W, pixels), B), images.contiguous()
    given = images, shift, position, out, n, H, W, width, eps, share
    _affinity[grid](*given, most, pixels, num_warps=1)  # a thread has all neighbours of a pixel
    return out
