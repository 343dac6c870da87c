"""The dense energy loss L_reg.

Tang et al.: On Regularized Losses for Weakly-supervised CNN Segmentation, ECCV 2018
(https://arxiv.org/abs/1803.09569), with the gate of ToCo (https://arxiv.org/abs/2303.01267).

The loss needs the unnormalised bilateral filter

.. math:: (A S)_i = \\sum_j \\exp(−½|f_i − f_j|²) S_j,

j = i included, without gradient. The features f are those of the dense CRF (Krähenbühl, Koltun
2011, https://arxiv.org/abs/1210.5644, Eq. 3).
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.data.image_set import IGNORE
from oversmoothing.lab.tasks.wsss.labels import inside
from oversmoothing.lab.tasks.wsss.lattice import Lattice, position_and_colour

Filter = Literal["lattice", "exact", "toco"]
CPU_BLOCK = 2**20  # entries of A computed at once; they fit into the cache
GPU_BLOCK = 2**26
SAMPLE = 256  # pixels that calibrate the lattice
LOG_SMALLEST = -50.0  # smallest logarithm of A's entries; CPUs are slow near underflow


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
    plan, ones = _plan(features), values.new_ones(B, N, 1)
    # multiples of the golden ratio spread the sample evenly over rows and columns
    every = torch.arange(1, SAMPLE + 1, dtype=torch.float64, device=features.device)
    sample = (every * (5**0.5 - 1) / 2 % 1 * N).long()
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
    return _plan(features)(values) / (1 + 2.0 ** -features.shape[-1])


def _plan(features: Tensor) -> Lattice:
    return Lattice(features, fixed=features.device.type != "cpu")


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


def dense_energy(
    images: Tensor,
    logits: Tensor,
    labels: Tensor,
    box: Tensor,
    sigma_rgb: float = 15.0,
    sigma_xy: float = 100.0,
    scale: float = 0.5,
    filter: Filter = "lattice",
    num_images: int | None = None,
) -> Tensor:
    r"""Computes the dense energy; it is low if near pixels of similar colour are predicted alike.

    .. math:: L = -\frac1N ⟨S, g · A S⟩

    S are the softmax probabilities on a grid resized by ``scale``, zero outside the box.
    A_ij = exp(−½|f_i − f_j|²) with f = (x/σ_xy, y/σ_xy, rgb/σ_rgb) includes i = j and is not
    normalised. The gate g = max(0, 1 − max_k S) is 1 where the pseudo label is 255. Since A is not
    normalised, L grows with the square of the number of pixels; the papers weight it by about 1e-7.

    The gradient is the papers' −2 g · A S / N inside the box, that of −⟨S, A S⟩/N with the gate
    applied afterwards. The exact gradient of L for constant g would be −(g · A S + A (g · S)) / N.

    Args:
        images: in [0, 1].
        logits: background and K classes, at the images' size.
        labels: pseudo labels; only used to find pixels of value 255.
        box: row0, row1, col0, col1 of the image within its padding, half-open.
        sigma_rgb: on the 0–255 scale.
        sigma_xy: in pixels of ``images``.
        scale: of the grid; images, labels and boxes are resized by nearest neighbour.
        filter: ``lattice`` or ``exact`` (see the functions for speed and error), or ``toco``,
            ToCo's compiled filter, with which L is 0.52 to 0.61 times as large.
        num_images: N, the size of the whole batch; None: that of ``images``.

    Shapes: images (B, 3, H, W), logits (B, 1+K, H, W), labels (B, H, W), box (B, 4) -> ().
    """
    size = [int(side * scale) for side in images.shape[-2:]]
    with torch.autocast(images.device.type, enabled=False):
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        S = F.interpolate(precise.softmax(dim=1), size, mode="bilinear", align_corners=False)
        with torch.no_grad():
            small = F.interpolate(images.to(S.dtype), size)
            features = position_and_colour(small, sigma_rgb, sigma_xy * scale)
            within = _nearest(inside(box, *images.shape[-2:]), size)
            ignored = _nearest(labels == IGNORE, size)
            gate = torch.where(ignored, 1.0, (1 - S.amax(dim=1)).clamp_(min=0)) * within
            AS = FILTERS[filter](features, (S * within[:, None]).flatten(2).mT)
            gated = gate[:, None] * AS.mT.view_as(S)
        energy = -(S * gated).sum() / (num_images or len(images))
        return 2 * energy - energy.detach()  # doubles the gradient but not the value


def _nearest(mask: Tensor, size: list[int]) -> Tensor:
    """Resizes a mask by nearest neighbour. Shapes: bool (B, H, W) -> bool (B, *size)."""
    return F.interpolate(mask[:, None].to(torch.uint8), size)[:, 0].bool()
