"""The dense energy loss L_reg.

Tang et al.: On Regularized Losses for Weakly-supervised CNN Segmentation, ECCV 2018
(https://arxiv.org/abs/1803.09569), with the gate of ToCo (https://arxiv.org/abs/2303.01267).

The loss needs the unnormalised bilateral filter

.. math:: (A S)_i = \\sum_j \\exp(−½|f_i − f_j|²) S_j,

j = i included, without gradient. The features f are those of the dense CRF (Krähenbühl, Koltun
2011, https://arxiv.org/abs/1210.5644, Eq. 3).
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.wsss.labels import inside
from oversmoothing.metrics.segmentation import IGNORE


class Lattice:
    """Gaussian filtering on the permutohedral lattice; it serves any values at its features.

    Adams, Baek, Davis: Fast High-Dimensional Filtering Using the Permutohedral Lattice, 2010
    (https://doi.org/10.1111/j.1467-8659.2009.01645.x). Points are lifted into the hyperplane
    Σx = 0 of D+1 dimensions. Its lattice points are the integer vectors whose coordinates are all
    congruent modulo D+1. Each point lies in a simplex of D+1 lattice points; its D+1 barycentric
    weights give its position there. Filtering has three steps: splat (points → lattice), blur by
    [½ 1 ½] along each of the D+1 axes, slice (lattice → points). As in the authors' code, only
    lattice points next to an input point exist. Contributions through others are lost, so the
    result has a factor that depends on the data, at D = 5 about 0.55 to 0.63 on photographs.

    Args:
        features: (B, N, D) in units of standard deviations; images of a batch are independent.

    Raises:
        InputError: features are so far apart that 63 bits cannot number the lattice points.
    """

    def __init__(self, features: Tensor) -> None:
        B, N, D = features.shape
        base, rank, self.weight = _simplices(features.reshape(B * N, D))
        keys, radix = _keys(base, rank, B)
        keys, order = keys.flatten().sort()
        lattice, vertex, counts = keys.unique_consecutive(return_inverse=True, return_counts=True)
        self.vertex = torch.empty_like(order).scatter_(0, order, vertex).view_as(self.weight)
        self.splat_point = order.div(D + 1, rounding_mode="floor")
        self.splat_weight = self.weight.flatten()[order]
        self.splat_start = counts.cumsum(0) - counts
        self.neighbours = [_neighbours(lattice, step) for step in _steps(radix)]
        self.nodes = len(lattice)

    def __call__(self, values: Tensor) -> Tensor:
        """Computes Σ_j exp(−½|f_i − f_j|²) v_j, j = i included, times a factor.

        Shapes: values (B, N, C) -> (B, N, C).
        """
        flat = values.flatten(0, 1)
        nodes = flat.new_zeros(self.nodes + 1, flat.shape[1])  # the last one stands for no node
        nodes[:-1] = _gather(flat, self.splat_point, self.splat_weight, self.splat_start)
        for axis in self.neighbours:
            nodes = _blur(nodes, *axis)
        return _gather(nodes, self.vertex, self.weight).view_as(values)


def _lift(features: Tensor) -> Tensor:
    """Lifts points; scales them so that blurring has σ = 1. Shapes: (N, D) -> (D+1, N)."""
    N, D = features.shape
    i = torch.arange(1, D + 1, dtype=features.dtype, device=features.device)
    scaled = (features * ((D + 1) * math.sqrt(2 / 3) / (i * (i + 1)).sqrt())).T
    tail = torch.stack([*accumulate(scaled.flip(0))]).flip(0)  # cumsum may vary on GPUs
    lifted = torch.cat([tail, tail.new_zeros(1, N)])
    lifted[1:] -= i[:, None] * scaled
    return lifted


def _simplices(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Finds the simplex around each point: its lowest vertex, ranks of coordinates, weights.

    Shapes: (N, D) -> base (D+1, N) int64, rank (D+1, N) int64, weight (N, D+1).
    """
    N, D = features.shape
    lifted = _lift(features)
    base = (lifted / (D + 1)).round()
    excess = base.sum(dim=0).long()  # rounding may leave the hyperplane
    base = base.long()
    rank = _descending_rank(lifted - base * (D + 1)) + excess
    wrap = (rank < 0).long() - (rank > D).long()
    base, rank = (base + wrap) * (D + 1), rank + wrap * (D + 1)
    rest = torch.empty_like(lifted).scatter_(0, rank, lifted - base)  # descending
    first = 1 - (rest[0] - rest[D]) / (D + 1)
    others = (rest[:-1] - rest[1:]).flip(0) / (D + 1)
    return base, rank, torch.cat([first[None], others]).T.contiguous()


def _descending_rank(x: Tensor) -> Tensor:
    """Ranks the rows of each column, 0 for the largest; ties by row. Shapes: (n, N)."""
    rank = torch.zeros(x.shape, dtype=torch.int64, device=x.device)
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            lower = x[i] < x[j]
            rank[i] += lower
            rank[j] += ~lower
    return rank


def _keys(base: Tensor, rank: Tensor, B: int) -> tuple[Tensor, Tensor]:
    """Numbers the vertices of the simplices, linearly in their first D coordinates.

    Shapes: (D+1, B·N) twice -> keys (B·N, D+1), radix (D,).
    """
    D = len(base) - 1
    base = base[:D]
    low = base.amin(dim=1, keepdim=True) - 2 * (D + 1)  # room for other vertices and neighbours
    extent = (base.amax(dim=1) - low[:, 0] + 2 * (D + 1)).tolist()
    if math.prod(extent) * B >= 2**63:
        raise InputError(
            "bilateral filter: the features span too many standard deviations to number the "
            "lattice points; choose larger sigma_rgb and sigma_xy, or filter: exact"
        )
    radix = base.new_tensor([math.prod(extent[i + 1 :]) for i in range(D)])
    image = torch.arange(B, device=base.device).repeat_interleave(base.shape[1] // B)
    lowest = ((base - low) * radix[:, None]).sum(dim=0) + image * math.prod(extent)
    # to the next vertex: add 1 to all coordinates, subtract D+1 where the remaining rank is largest
    down = torch.zeros_like(rank).scatter_(0, rank[:D], radix[:, None].expand_as(base))
    steps = radix.sum() - (D + 1) * down[1:].flip(0)
    return torch.cat([lowest[None], lowest + steps.cumsum(dim=0)]).T, radix


def _steps(radix: Tensor) -> list[Tensor]:
    """Returns the difference of keys to the next lattice point along each of the D+1 axes."""
    D = len(radix)
    return [*(radix.sum() - (D + 1) * radix), radix.sum()]


def _neighbours(lattice: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the indices of the next and the previous lattice points along one axis.

    A missing point has the number of points as index; it is its own neighbour. This does not
    synchronise with a GPU.
    """
    n, target = len(lattice), lattice + step
    after = torch.searchsorted(lattice, target)
    exists = lattice[after.clamp(max=n - 1)] == target
    after = F.pad(after.where(exists, n), (0, 1), value=n)
    before = torch.full_like(after, n).scatter_(0, after, torch.arange(n + 1, device=after.device))
    before[-1] = n
    return after, before


def _blur(nodes: Tensor, after: Tensor, before: Tensor) -> Tensor:
    """Blurs by [½ 1 ½] along one axis."""
    half = nodes / 2
    return (nodes + half[after]).add_(half[before])


def _gather(x: Tensor, index: Tensor, weight: Tensor, start: Tensor | None = None) -> Tensor:
    """Computes weighted sums of rows, per row of ``index`` or per segment from ``start`` on."""
    return F.embedding_bag(index, x, start, mode="sum", per_sample_weights=weight)


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

    Raises:
        InputError: an unknown filter, a σ that is not above 0, or tensors whose shapes do not fit.

    Shapes: images (B, 3, H, W), logits (B, 1+K, H, W), labels (B, H, W), box (B, 4) -> ().
    """
    _require(images, logits, labels, box, filter)
    if not (sigma_rgb > 0 and sigma_xy > 0):
        got = f"{sigma_rgb} and {sigma_xy}"
        raise InputError(f"sigma_rgb, sigma_xy: expected numbers above 0, got {got}")
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


def _require(images: Tensor, logits: Tensor, labels: Tensor, box: Tensor, filter: str) -> None:
    if filter not in FILTERS:
        raise InputError(
            f"filter: expected one of {', '.join(FILTERS)}, got {filter!r}; "
            "lattice is fast, exact is O(N²)"
        )
    B, _, H, W = images.shape
    found = [tuple(x.shape) for x in (logits[:, 0], labels, box)]
    if found != [(B, H, W), (B, H, W), (B, 4)]:
        raise InputError(
            f"dense energy: expected logits and labels at the images' size ({B}, {H}, {W}) and box "
            f"({B}, 4), got {found[0]}, {found[1]} and {found[2]}; resize the logits first"
        )
