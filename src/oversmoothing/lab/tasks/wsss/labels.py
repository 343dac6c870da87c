"""Pixel labels from CAMs: pseudo labels with two background scores, and simple thresholds.

A pseudo label (ToCo) combines two label maps, one with a high and one with a low background score;
PAR refines both. A pixel is background if it is background in both maps. It is unsure (255) if it
is background only with the high score. Otherwise it has its class in the map with the high score.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.data.image_set import IGNORE
from oversmoothing.lab.tasks.wsss.network import Network, Present, multi_scale_cams
from oversmoothing.lab.tasks.wsss.par import PAR
from oversmoothing.lab.tasks.wsss.settings import Method


class Labeller:
    """Makes CAMs and pseudo labels of images, for training, evaluation and pictures.

    Args:
        network: computes the CAMs.
        method: scales of CAMs and constants of pseudo labels.
    """

    def __init__(self, network: Network, method: Method) -> None:
        self.network, self.method = network, method
        par = PAR(iterations=method.par_iterations)
        self.par = par.to(next(network.parameters()).device)

    def cams(self, images: Tensor, present: Present) -> tuple[Tensor, Tensor]:
        """Computes CAMs of the last and the auxiliary layer, see ``multi_scale_cams``."""
        return multi_scale_cams(self.network, images, present, self.method.cam_scales)

    def pseudo(
        self, cam: Tensor, present: Present, images: Tensor, box: Tensor | None = None
    ) -> Tensor:
        """Computes pseudo labels, see ``pseudo_labels``; box=None: the image fills the crop."""
        if box is None:
            B, _, H, W = images.shape
            box = torch.tensor([0, H, 0, W], device=images.device).expand(B, 4)
        return pseudo_labels(cam, present, images, box, self.par, self.method.high, self.method.low)


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
    """Computes labels 0…K, with 255 for unsure pixels and pixels outside the image.

    Args:
        cam: (B, M, H, W) in [0, 1], 0 at padded classes.
        present: the classes of ``cam``.
        images: (B, 3, H, W) in [0, 1].
        box: (B, 4), place of the image in its crop.
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


def strongest(cam: Tensor, present: Present) -> tuple[Tensor, Tensor]:
    """Returns the highest CAM of every pixel and its label 1…K.

    Shapes: cam (B, M, H, W) -> twice (B, H, W).
    """
    best = cam.max(dim=1)
    return best.values, _named(best.indices, present.index)


def resized(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Resizes maps (bilinear). Shapes: (B, M, H, W) -> (B, M, *size)."""
    return F.interpolate(maps, size, mode="bilinear")


def resized_labels(labels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resizes labels to those of the nearest pixels. Shapes: (B, H, W) -> (B, *size), int64."""
    return F.interpolate(labels[:, None].float(), size, mode="nearest")[:, 0].long()


def inside(box: Tensor, height: int, width: int) -> Tensor:
    """Whether pixels are in half-open boxes (B, 4): row0, row1, col0, col1. -> (B, H, W), bool."""
    rows = torch.arange(height, device=box.device)[None, :, None]
    cols = torch.arange(width, device=box.device)[None, None, :]
    row0, row1, col0, col1 = box.T[:, :, None, None]
    return (rows >= row0) & (rows < row1) & (cols >= col0) & (cols < col1)


def _with_background(cam: Tensor, valid: Tensor, score: float) -> Tensor:
    """Returns the probabilities (B, 1 + M, h, w) of background and present classes."""
    scores = cam.masked_fill(~valid[:, :, None, None], -torch.inf)
    return torch.cat([torch.full_like(cam[:, :1], score), scores], dim=1).softmax(dim=1)


def _classes(scores: Tensor, index: Tensor) -> Tensor:
    """Returns the labels with the highest score among background and present classes."""
    best = scores.max(dim=1).indices  # several times as fast as argmax on a CPU
    return torch.where(best > 0, _named((best - 1).clamp(min=0), index), 0)


def _named(position: Tensor, index: Tensor) -> Tensor:
    """Maps positions in the list of present classes to labels 1…K."""
    B, H, W = position.shape
    return index.gather(1, position.view(B, -1)).view(B, H, W) + 1
