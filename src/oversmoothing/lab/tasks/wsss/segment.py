"""Multi-scale segmentation of whole images, with mirror images."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.data.image_set import to_array, to_float
from oversmoothing.lab.tasks.wsss.crf_parallel import Job
from oversmoothing.lab.tasks.wsss.evaluation import Evaluation
from oversmoothing.lab.tasks.wsss.network import Network

Fusion = Literal["voc", "coco"]


def segmented(network: Network, name: str, image: Tensor, evaluation: Evaluation) -> Job:
    """Segments an image at the scales of an evaluation, or at its own size, for the dense CRF.

    Shapes: image (3, H, W) uint8 -> name, (H, W, 3) uint8, probabilities (1 + K, H, W).
    """
    device, scales = next(network.parameters()).device, evaluation.ms_scales or [1.0]
    how = (scales, evaluation.ms_size, evaluation.fusion)
    found = multi_scale_probabilities(network, to_float(image.to(device)), *how)
    return name, to_array(image), found.cpu().numpy()


@torch.no_grad()
def multi_scale_probabilities(
    network: Network,
    image: Tensor,
    scales: Sequence[float] = (1.0, 1.25, 1.5),
    size: int | None = None,
    fusion: Fusion = "voc",
) -> Tensor:
    """Computes the softmax of the fused logits of several scales, each with its mirror image.

    Args:
        image: (3, H, W) in [0, 1].
        scales: of the input; sides are rounded to whole patches.
        size: side of the square at scale 1, as in ToCo on COCO; None: the image's size, as on VOC.
        fusion: ``voc``: sum of image and mirror image, then maximum over scales; ``coco``: maximum
            of image and mirror image, then sum over scales (ToCo's two scripts).

    Shapes: -> (1 + K, H, W).
    """
    _, H, W = image.shape
    base = (size, size) if size else (H, W)
    each = [_both(network, image, [scale * side for side in base]) for scale in scales]
    stacked = torch.stack(each)  # (S, 2, 1 + K, H, W)
    fused = stacked.sum(1).amax(0) if fusion == "voc" else stacked.amax(1).sum(0)
    return fused.softmax(dim=0)


def _both(network: Network, image: Tensor, sides: list[float]) -> Tensor:
    """Computes logits of an image and of its mirror image, mirrored back: (2, 1 + K, H, W)."""
    patch = network.backbone.patch
    sides = [patch * max(1, round(side / patch)) for side in sides]
    scaled = F.interpolate(image[None], sides, mode="bilinear")
    logits = network.segment(torch.cat([scaled, scaled.flip(-1)])).float()
    logits = F.interpolate(logits, image.shape[-2:], mode="bilinear")
    return torch.stack([logits[0], logits[1].flip(-1)])
