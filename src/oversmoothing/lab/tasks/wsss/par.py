"""Pixel-adaptive refinement (PAR) of class maps by the colours of the image."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.checks import runs_triton

EPS = 1e-8
W1, W2 = 0.3, 0.01  # width of both Gaussians, weight of the distance term
AROUND = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]
CPU_CHUNK = 2**15  # elements per thread: they fit its cache, and torch splits no further
GPU_CHUNK = 2**23


class PAR(nn.Module):
    r"""Pixel-adaptive refinement: averages class maps over neighbours of similar colour.

    Ru et al., Learning Affinity from Attention (AFA), CVPR 2022, Sec. 3.4,
    https://arxiv.org/abs/2203.02664; used unchanged by ToCo, https://arxiv.org/abs/2303.01267.

    .. math:: M ← \sum_n a_n M_n, \quad a = \frac{
        \mathrm{softmax}_n(-\tfrac13 \sum_c (ΔI_{n,c} / (σ_c w_1))^2)
        + w_2\, \mathrm{softmax}_n(-(d_n / (\mathrm{std}(d)\, w_1))^2)}{1 + w_2}

    over 8 neighbours per dilation. ΔI is the difference of colour, σ_c the unbiased standard
    deviation of the neighbours' values in channel c (+ 1e-8), d the distance in pixels. Borders
    are replicated. The papers set w_1 = 0.3, w_2 = 0.01. Every class map is refined independently:
    absent classes can be left out, and maps of several thresholds can be refined in one call.

    Differences of colour are divided by σ, so the scale of the images does not matter. No gradient
    is computed.

    Args:
        dilations: distances of the rings of neighbours.
        iterations: number of averaging steps.

    Shapes: images (B, 3, H, W), masks (B, K, H, W) -> (B, K, H, W).
    """

    def __init__(
        self, dilations: tuple[int, ...] = (1, 2, 4, 8, 12, 24), iterations: int = 10
    ) -> None:
        super().__init__()
        self.shifts = [(d * y, d * x) for d in dilations for y, x in AROUND]
        self.reach, self.iterations = max(dilations), iterations
        self.colour_share = 1 / (1 + W2)  # rows sum to 1; in the code of ToCo and AFA to 1 + w2
        position = self.colour_share * W2 * _position(self.shifts)
        self.register_buffer("position", position, persistent=False)
        shift = torch.tensor(self.shifts, dtype=torch.int32)
        self.register_buffer("shift", shift, persistent=False)

    @torch.no_grad()
    def forward(self, images: Tensor, masks: Tensor) -> Tensor:
        H, W = images.shape[-2:]
        affinity, masks = self.affinity(images), masks.to(images.dtype)
        if _in_kernels(images):
            from oversmoothing.lab.tasks.wsss.par_kernel import averaged

            for _ in range(self.iterations):
                masks = averaged(masks, affinity, self.shift)
            return masks
        around = self._around(H, W)
        first = torch.arange(H * W, device=around.device, dtype=around.dtype) * len(self.shifts)
        refined = torch.empty_like(masks)
        for weights, one, out in zip(affinity, masks, refined):
            x, weights = one.flatten(1).T.contiguous(), weights.flatten(1).T.flatten()
            for _ in range(self.iterations):  # one pass over all neighbours
                x = F.embedding_bag(around, x, first, mode="sum", per_sample_weights=weights)
            out.copy_(x.T.view_as(out))
        return refined

    @torch.no_grad()
    def affinity(self, images: Tensor) -> Tensor:
        """Computes the weights a of the neighbours, in the order of ``shifts``.

        Shapes: images (B, 3, H, W) -> (B, neighbours, H, W).
        """
        B, _, H, W = images.shape
        if _in_kernels(images):
            from oversmoothing.lab.tasks.wsss.par_kernel import affinities

            position, width = self.position.flatten().float(), W1 * math.sqrt(3)
            return affinities(images, self.shift, position, width, EPS, self.colour_share)
        padded = F.pad(images, [self.reach] * 4, mode="replicate")
        affinity = images.new_empty(B, len(self.shifts), H, W)
        for top, bottom in _row_chunks(images, 3 * B * W * len(self.shifts) // 8):
            colours = torch.stack(tuple(self._shifted(padded, top, bottom)))  # (n, B, 3, rows, W)
            logits = _log_affinity(colours, images[:, :, top:bottom])
            torch.softmax(logits.transpose(0, 1), dim=1, out=affinity[:, :, top:bottom])
        return affinity.mul_(self.colour_share).add_(self.position.to(images.dtype))

    def _around(self, H: int, W: int) -> Tensor:
        """Returns the indices of the neighbours of every pixel, in the order of ``shifts``.

        Shapes: -> (H·W·neighbours,), int32.
        """
        row, column = self.shift[:, 0, None, None], self.shift[:, 1, None, None]
        rows, columns = (torch.arange(n, out=self.shift.new_empty(n)) for n in (H, W))
        near = (rows[:, None] + row).clamp(0, H - 1) * W + (columns + column).clamp(0, W - 1)
        return near.flatten(1).T.flatten()

    def _shifted(self, padded: Tensor, top: int, bottom: int) -> Iterator[Tensor]:
        """Yields views of the neighbours of the rows from top to bottom."""
        W = padded.shape[-1] - 2 * self.reach
        for y, x in self.shifts:
            y, x = y + self.reach, x + self.reach
            yield padded[..., top + y : bottom + y, x : x + W]


def _in_kernels(images: Tensor) -> bool:
    return images.dtype == torch.float32 and runs_triton(images)


def _log_affinity(colours: Tensor, centre: Tensor) -> Tensor:
    """Computes the mean over RGB of −(ΔI / (σ w1))².

    σ is computed in two passes, since one pass suffers from cancellation in flat regions.

    Shapes: colours (n, B, 3, rows, W), overwritten; centre (B, 3, rows, W) -> (n, B, rows, W).
    """
    mean = colours.mean(dim=0)
    colours -= mean
    variance = colours.square().sum(dim=0) / (len(colours) - 1)
    scale = 1 / (W1 * math.sqrt(3) * (variance.sqrt_() + EPS))
    return colours.sub_(centre - mean).mul_(scale).square_().sum(dim=2).neg_()


def _position(shifts: list[tuple[int, int]]) -> Tensor:
    """Softmax over neighbours of −(d / (std(d) w_1))². Shapes: -> (neighbours, 1, 1)."""
    d = torch.tensor(shifts, dtype=torch.float64).norm(dim=1)
    return (-((d / d.std() / W1) ** 2)).softmax(dim=0)[:, None, None]


def _row_chunks(x: Tensor, per_row: int) -> Iterator[tuple[int, int]]:
    """Splits rows of ``per_row`` elements into ranges (top, bottom) of at most one chunk."""
    H, on_cpu = x.shape[-2], x.device.type == "cpu"
    chunk = CPU_CHUNK * torch.get_num_threads() if on_cpu else GPU_CHUNK
    step = max(1, chunk // per_row)
    return ((top, min(top + step, H)) for top in range(0, H, step))
