"""Unnormalised bilateral filtering A S: (A S)_i = Σ_j exp(−½|f_i − f_j|²) S_j, j = i included.

No gradient is computed. The features are those of the dense CRF (Krähenbühl, Koltun 2011,
https://arxiv.org/abs/1210.5644, eq. 3).
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from oversmoothing.lab.tasks.wsss.permutohedral import Lattice

Filter = Literal["lattice", "exact", "toco"]
CPU_BLOCK = 2**20  # entries of A computed at once; they fit into the cache
GPU_BLOCK = 2**26
SAMPLE = 256  # pixels that calibrate the lattice
LOG_SMALLEST = -50.0  # smallest logarithm of A's entries; CPUs are slow near underflow


def position_and_colour(images: Tensor, sigma_rgb: float, sigma_xy: float) -> Tensor:
    """Computes the features f = (x/σ_xy, y/σ_xy, rgb/σ_rgb) of every pixel, row by row.

    Args:
        images: in [0, 1].
        sigma_rgb: on the 0–255 scale.
        sigma_xy: in pixels of these images.

    Shapes: images (B, 3, H, W) -> (B, H·W, 5).
    """
    B, _, H, W = images.shape
    y = torch.arange(H, dtype=images.dtype, device=images.device) / sigma_xy
    x = torch.arange(W, dtype=images.dtype, device=images.device) / sigma_xy
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy")).expand(B, -1, -1, -1)
    return torch.cat([grid, images * (255 / sigma_rgb)], dim=1).flatten(2).mT


@torch.no_grad()
def exact(features: Tensor, values: Tensor) -> Tensor:
    """Computes A S exactly in time O(N²). (..., N, D), values (..., N, C) -> (..., N, C)."""
    return between(features, features, values)


@torch.no_grad()
def between(to: Tensor, features: Tensor, values: Tensor) -> Tensor:
    """Computes Σ_j exp(−½|t_i − f_j|²) v_j at other features t.

    Shapes: to (..., M, D), features (..., N, D), values (..., N, C) -> (..., M, C).
    """
    if to.dim() > 2:
        return torch.stack([between(*one) for one in zip(to, features, values)])
    centre = features.mean(dim=0)  # avoids cancellation in |t|² + |f|² − 2 t·f
    t, f = to - centre, features - centre
    values = values.contiguous()  # the product below is several times slower for transposed values
    t = torch.cat([t, -_half_square(t), torch.ones_like(t[:, :1])], dim=1)
    f = torch.cat([f, torch.ones_like(f[:, :1]), -_half_square(f)], dim=1)
    rows = max(1, (CPU_BLOCK if t.device.type == "cpu" else GPU_BLOCK) // len(f))
    A = t.new_empty(min(rows, len(t)), len(f))  # one buffer for all blocks
    filtered = values.new_empty(len(t), values.shape[1])
    with _all_bits():
        for block, out in zip(t.split(rows), filtered.split(rows)):
            weights = torch.mm(block, f.T, out=A[: len(block)])
            torch.mm(weights.clamp_(min=LOG_SMALLEST).exp_(), values, out=out)
    return filtered


@torch.no_grad()
def lattice(features: Tensor, values: Tensor) -> Tensor:
    """Computes A S on the permutohedral lattice in time O(N), calibrated.

    One factor per image makes the sum of A's rows over ``SAMPLE`` pixels exact. On photographs and
    noise (112² and 160² pixels, 21 classes, σ_rgb 15, σ_xy 50) the relative L2 error is 6 to 12 %,
    and ⟨S, A S⟩ is 0 to 2.2 % too small. It is 8 (112²) to 29 (224²) times as fast as ``exact`` on
    one CPU core.

    Shapes: features (B, N, D), values (B, N, C) -> (B, N, C).
    """
    B, N, _ = features.shape
    plan, ones = Lattice(features), values.new_ones(B, N, 1)
    # multiples of the golden ratio spread the sample evenly over rows and columns
    share = torch.arange(1, SAMPLE + 1, dtype=torch.float64) * (5**0.5 - 1) / 2 % 1
    sample = (share * N).long().to(features.device)
    true = between(features[:, sample], features, ones).sum(dim=1, keepdim=True)
    filtered = plan(torch.cat([values, ones], dim=2))
    factor = true / filtered[:, sample, -1:].sum(dim=1, keepdim=True)
    return filtered[..., :-1] * factor


@torch.no_grad()
def toco(features: Tensor, values: Tensor) -> Tensor:
    """Computes A S on the lattice with the factor of ToCo's compiled filter, 1 / (1 + 2^-D).

    Equals that filter (meng-tang/rloss) to 1e-5. ⟨S, A S⟩ is 0.52 to 0.61 times its true value.

    Shapes: features (B, N, D), values (B, N, C) -> (B, N, C).
    """
    return Lattice(features)(values) / (1 + 2.0 ** -features.shape[-1])


@contextlib.contextmanager
def _all_bits() -> Iterator[None]:
    """Context without TF32, whose 11 bits are too few for a difference of squares."""
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def _half_square(x: Tensor) -> Tensor:
    return x.square().sum(dim=1, keepdim=True) / 2


FILTERS: dict[Filter, Callable[[Tensor, Tensor], Tensor]]
FILTERS = {"lattice": lattice, "exact": exact, "toco": toco}
