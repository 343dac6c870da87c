"""Logits of whole images of any size, at one scale or at several scales."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.tasks.segmentation.network import Segmenter, upsampled


@torch.no_grad()
def whole_image(network: Segmenter, image: Tensor) -> Tensor:
    """Computes the logits of an image at its own size.

    The image is padded to the right and at the bottom to a size that fits the backbone, with the
    colour that the backbone normalises to 0. The logits are upsampled, then cut to the image.

    Shapes: image (3, H, W) in [0, 1] -> (classes, H, W).
    """
    _, H, W = image.shape
    mean = network.backbone.mean.view(3, 1, 1).to(image)
    size = fitting(network.backbone, H), fitting(network.backbone, W)
    padded = mean.expand(3, *size).clone()
    padded[:, :H, :W] = image
    logits = network.segment(padded[None])
    return upsampled(logits, size, aligned=not network.patches)[0, :, :H, :W]


def multi_scale(
    network: Segmenter,
    image: Tensor,
    scales: Sequence[float],
    flip: bool = True,
    size: int | None = None,
) -> Tensor:
    """Sums the logits of an image at several scales (EANet's test script).

    Args:
        image: (3, H, W) in [0, 1].
        scales: of the input.
        flip: add the logits of the mirror image, mirrored back, at each scale.
        size: longer side at scale 1; None: the image's own.

    Shapes: -> (classes, H, W).
    """
    H, W = own = image.shape[-2:]
    longer = size or max(H, W)
    height, width = (side * longer / max(H, W) for side in own)
    total: Tensor | float = 0.0
    for scale in scales:
        # rounds down; 1e-6 corrects products just below a whole number
        sides = [max(1, int(side * scale + 1e-6)) for side in (height, width)]
        scaled = _resized(image, sides)
        total = total + _resized(whole_image(network, scaled), own)
        if flip:
            total = total + _resized(whole_image(network, scaled.flip(-1)).flip(-1), own)
    return total


def fitting(backbone: nn.Module, side: int) -> int:
    """Returns the smallest size of at least ``side`` that fits a backbone.

    For a ViT this is a multiple of the patch. For a CNN it is a multiple of the output stride plus
    1, so that the first and last features lie on the first and last pixels (EMANet).
    """
    step, rest = (backbone.patch, 0) if backbone.patch > 1 else (backbone.output_stride, 1)
    side = max(side, step)
    return side + (rest - side) % step


def _resized(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Resizes maps. Shapes: (C, h, w) -> (C, *size)."""
    if maps.shape[-2:] == tuple(size):
        return maps
    return F.interpolate(maps[None], tuple(size), mode="bilinear", align_corners=True)[0]
