"""Pixel labels from CAMs: two background scores, refined by PAR (ToCo; recipes C).

A pixel is background where both runs say so, unsure (255) where only the one with the high
background score does, and else the class that the latter found.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.metrics.segmentation import IGNORE
from oversmoothing.tasks.wsss.boxes import inside
from oversmoothing.tasks.wsss.cam import Present
from oversmoothing.tasks.wsss.par import PAR


@torch.no_grad()
def pseudo_labels(
    cam: Tensor,
    present: Present,
    images: Tensor,
    box: Tensor,
    par: PAR,
    high: float = 0.7,
    low: float = 0.25,
) -> Tensor:
    """Labels 0…K and 255 for unsure pixels and those outside the image.

    Args:
        cam: (B, M, H, W) in [0, 1], 0 at padded classes.
        present: the classes of ``cam``.
        images: (B, 3, H, W) in [0, 1].
        box: (B, 4) where the image lies in its crop.
        par: refines at half resolution.
        high, low: background scores.

    Shapes: -> (B, H, W) int64.
    """
    B, M, H, W = cam.shape
    half = [H // 2, W // 2]
    small = F.interpolate(cam, half, mode="bilinear")
    planes = torch.cat([_with_background(small, present.valid, b) for b in (high, low)], dim=1)
    refined = par(F.interpolate(images, half, mode="bilinear"), planes)  # one affinity for both
    refined = F.interpolate(refined, (H, W), mode="bilinear")
    sure, rest = (_classes(scores, present.index) for scores in refined.split(M + 1, dim=1))
    sure[sure == 0] = IGNORE
    sure[(sure == IGNORE) & (rest == 0)] = 0
    return sure.masked_fill(~inside(box, H, W), IGNORE)


def thresholded(cam: Tensor, present: Present, background: float = 0.5) -> Tensor:
    """The class of the highest CAM, or 0 where none exceeds ``background``.

    Shapes: cam (B, M, H, W) -> (B, H, W) int64 in 0…K.
    """
    best = cam.max(dim=1)
    classes = _named(best.indices, present.index)
    return torch.where(best.values > background, classes, 0)


def _with_background(cam: Tensor, valid: Tensor, score: float) -> Tensor:
    """Probabilities (B, 1 + M, h, w) of background and present classes."""
    scores = cam.masked_fill(~valid[:, :, None, None], -torch.inf)
    return torch.cat([torch.full_like(cam[:, :1], score), scores], dim=1).softmax(dim=1)


def _classes(scores: Tensor, index: Tensor) -> Tensor:
    """Label of the best of background and present classes."""
    best = scores.argmax(dim=1)
    return torch.where(best > 0, _named((best - 1).clamp(min=0), index), 0)


def _named(position: Tensor, index: Tensor) -> Tensor:
    """Position in the list of present classes -> label 1…K."""
    B, H, W = position.shape
    return index.gather(1, position.view(B, -1)).view(B, H, W) + 1
