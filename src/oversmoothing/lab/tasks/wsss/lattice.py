"""Gaussian filtering in many dimensions on the permutohedral lattice.

Adams, Baek, Davis: Fast High-Dimensional Filtering Using the Permutohedral Lattice, 2010
(https://doi.org/10.1111/j.1467-8659.2009.01645.x). L_reg and the dense CRF filter with it.
"""

import math
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.aggregators.checks import takes_kernels
from oversmoothing.errors import InputError


class Lattice:
    """Gaussian filter over fixed features; it serves any values at them.

    Points are lifted into the hyperplane Σx = 0 of D+1 dimensions. Its lattice points are the
    integer vectors whose coordinates are all congruent modulo D+1. Each point lies in a simplex of
    D+1 lattice points; its D+1 barycentric weights give its position there. Filtering has three
    steps: splat (points → lattice), blur by [½ 1 ½] along each of the D+1 axes, slice (lattice →
    points). As in the authors' code, only lattice points next to an input point exist.
    Contributions through others are lost, so the result has a factor that depends on the data, at
    D = 5 about 0.55 to 0.63 on photographs.

    Args:
        features: (B, N, D) in units of standard deviations; images of a batch are independent.
        fixed: keep room for N (D+1) lattice points, so that no shape depends on the features and
            nothing is copied to the host, as CUDA graphs need it. Values are the same; features
            that are too far apart give NaN instead of an error.

    Raises:
        InputError: features are so far apart that 61 bits cannot number the lattice points.
    """

    def __init__(self, features: Tensor, fixed: bool = False) -> None:
        B, N, D = features.shape
        base, rank, self.weight = _simplices(features.reshape(B * N, D))
        keys, radix, fits = _keys(base, rank, B)
        fits = fits & self.weight.isfinite().all()
        if fixed:
            self.weight = self.weight.where(fits, torch.nan)
        elif not fits:
            raise InputError(
                "bilateral filter: the features span too many standard deviations to number the "
                "lattice points; choose larger σ, or for L_reg task.method.filter=exact"
            )
        keys, order = keys.flatten().sort()
        lattice, vertex, self.splat_start = _distinct(keys, fixed)
        self.vertex = torch.empty_like(order).scatter_(0, order, vertex).view_as(self.weight)
        self.splat_point = order.div(D + 1, rounding_mode="floor")
        self.splat_weight = self.weight.flatten()[order]
        self.nodes, self.on_gpu = len(lattice), takes_kernels(features)  # and values
        if self.on_gpu:
            from oversmoothing.lab.tasks.wsss.lattice_kernels import neighbours

            self.count = vertex.flatten()[-1:] + 1 if fixed else vertex.new_full((1,), self.nodes)
            self.near = neighbours(lattice, torch.stack(_steps(radix)), self.count)
            return
        self.neighbours = [_neighbours(lattice, step) for step in _steps(radix)]
        self.blur = features.new_full((self.nodes + 1, 3), 1 / 2)
        self.blur[:, 0] = 1

    def __call__(self, values: Tensor) -> Tensor:
        """Computes Σ_j exp(−½|f_i − f_j|²) v_j, j = i included, times a factor.

        Shapes: values (B, N, C) -> (B, N, C).
        """
        flat = values.flatten(0, 1)
        if self.on_gpu:
            from oversmoothing.lab.tasks.wsss.lattice_kernels import filtered

            splat = self.splat_point, self.splat_weight, self.splat_start
            every = splat, self.near, self.count, self.vertex, self.weight
            return filtered(flat, *every).view_as(values)
        nodes = flat.new_zeros(self.nodes + 1, flat.shape[1])  # the last one stands for no node
        nodes[:-1] = _gather(flat, self.splat_point, self.splat_weight, self.splat_start)
        for axis in self.neighbours:
            nodes = _gather(nodes, axis, self.blur)
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
    lost = ((rank < 0) | (rank > D)).any(dim=0)  # features are NaN, or as large as rounding errors
    rank = rank.clamp(0, D)
    offset = (lifted - base).masked_fill(lost, torch.nan)
    rest = torch.empty_like(lifted).scatter_(0, rank, offset)  # descending
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


LARGEST = 2**61  # above all keys of lattice points; twice it stands for no point


def _keys(base: Tensor, rank: Tensor, B: int) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers the vertices of the simplices, linearly in their first D coordinates.

    Shapes: (D+1, B·N) twice -> keys (B·N, D+1), radix (D,), whether keys are below LARGEST ().
    """
    D = len(base) - 1
    base = base[:D]
    low = base.amin(dim=1, keepdim=True) - 2 * (D + 1)  # room for other vertices and neighbours
    extent = base.amax(dim=1) - low[:, 0] + 2 * (D + 1)
    products = F.pad(extent.flip(0), (1, 0), value=1).cumprod(0)
    radix, whole = products[:-1].flip(0), products[-1]
    image = torch.arange(B, device=base.device).repeat_interleave(base.shape[1] // B)
    lowest = ((base - low) * radix[:, None]).sum(dim=0) + image * whole
    # to the next vertex: add 1 to all coordinates, subtract D+1 where the remaining rank is largest
    down = torch.zeros_like(rank).scatter_(0, rank[:D], radix[:, None].expand_as(base))
    steps = radix.sum() - (D + 1) * down[1:].flip(0)
    keys = torch.cat([lowest[None], lowest + steps.cumsum(dim=0)]).T
    return keys, radix, extent.double().prod() * B < LARGEST


def _distinct(keys: Tensor, fixed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Finds the distinct ones of sorted keys.

    Args:
        keys: (m,).
        fixed: return room for m keys; those that are not needed are 2 LARGEST and start at m.

    Returns:
        The distinct keys (n,), the index among them of every key (m,), and the position of the
        first of each (n,).
    """
    m = len(keys)
    first = F.pad(keys[1:] != keys[:-1], (1, 0), value=True)
    index = first.cumsum(0) - 1
    n = m if fixed else int(index[-1]) + 1
    place = index.where(first, m)  # the last entry takes what is not the first of its kind
    distinct = torch.full((m + 1,), 2 * LARGEST, device=keys.device).scatter_(0, place, keys)
    start = torch.full_like(distinct, m).scatter_(0, place, torch.arange(m, device=keys.device))
    return distinct[:n].contiguous(), index, start[:n].contiguous()


def _steps(radix: Tensor) -> list[Tensor]:
    """Returns the difference of keys to the next lattice point along each of the D+1 axes."""
    D = len(radix)
    return [*(radix.sum() - (D + 1) * radix), radix.sum()]


def _neighbours(lattice: Tensor, step: Tensor) -> Tensor:
    """Returns the indices of each lattice point and of the next and previous one along an axis.

    A missing point has the number of points as index; it is its own neighbour. This does not
    synchronise with a GPU.

    Shapes: (n,) -> (n + 1, 3).
    """
    n, target = len(lattice), lattice + step
    after = torch.searchsorted(lattice, target)
    exists = lattice[after.clamp(max=n - 1)] == target
    after = F.pad(after.where(exists, n), (0, 1), value=n)
    every = torch.arange(n + 1, device=after.device)
    before = torch.full_like(after, n).scatter_(0, after, every)
    before[-1:] = n  # a number at an index would be copied from the host
    return torch.stack([every, after, before], dim=1)


def _gather(x: Tensor, index: Tensor, weight: Tensor, start: Tensor | None = None) -> Tensor:
    """Computes weighted sums of rows, per row of ``index`` or per segment from ``start`` on."""
    return F.embedding_bag(index, x, start, mode="sum", per_sample_weights=weight)


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
