"""Segmentation networks: a backbone, which contains the aggregator, and a head.

The head is EMANet's (Li et al., ICCV 2019, code): 3×3 convolution, normalisation, ReLU, dropout of
channels, 1×1 convolution. EMANet's 3×3 convolution and attention unit before the head are part of
the backbone here (``backbones/cnn.py``).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.cnn import CNN, set_momentum
from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.tasks.base import OnBackbone


class Outputs(NamedTuple):
    """Logits (B, classes, h, w) on the backbone's grid, of the head and of the auxiliary head."""

    seg: Tensor
    aux: Tensor | None


class Segmenter(OnBackbone):
    """Labels pixels.

    Args:
        backbone: CNN, or ViT, whose patch tokens form the feature map.
        num_classes: number of labels, background included.
        dim: channels between the head's two convolutions.
        dropout: probability that a channel is dropped before the classifier.
        auxiliary: add a second head on an earlier stage, for training only.

    Raises:
        InputError: ``dim`` or ``dropout`` is out of range.
    """

    def __init__(
        self,
        backbone: CNN | ViT,
        num_classes: int,
        dim: int = 256,
        dropout: float = 0.1,
        auxiliary: bool = False,
    ) -> None:
        super().__init__()
        if dim < 1 or not 0 <= dropout < 1:
            raise InputError(
                "task.head_dim, .dropout: expected 1 or more, and 0 to below 1; "
                f"got {dim}, {dropout}"
            )
        self.backbone = backbone
        self.patches = hasattr(backbone, "to_map")
        self.head = _head(backbone.dim, num_classes, dim, dropout)
        aux_dim = backbone.dim if self.patches else backbone.aux_dim
        self.auxiliary = _head(aux_dim, num_classes, dim, dropout) if auxiliary else None
        if not self.patches:
            set_momentum(self, backbone.bn_momentum)

    def forward(self, images: Tensor) -> Outputs:
        """Computes the logits of both heads. Shapes: images (B, 3, H, W) in [0, 1]."""
        features, earlier = self.features(images)
        return Outputs(self.head(features), self.auxiliary(earlier) if self.auxiliary else None)

    def features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns feature maps of the last and an earlier stage, or of a ViT's middle block."""
        if not self.patches:
            return self.backbone(images)
        H, W = images.shape[-2:]
        middle = self.backbone.depth // 2
        tokens, taken = self.backbone(images, take=(middle,))
        return tuple(self.backbone.to_map(x, H, W) for x in (tokens, taken[middle]))

    def segment(self, images: Tensor) -> Tensor:
        """Computes the logits of the head. Shapes: (B, 3, H, W) -> (B, classes, h, w)."""
        return self.head(self.features(images)[0])

    def parameter_groups(self, lr: float, head_factor: float) -> list[dict]:
        """Returns pretrained parts at ``lr`` and the others at ``head_factor`` times ``lr``."""
        old = {id(p) for part in self.pretrained_parts() for p in part.parameters()}
        trained = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trained if id(p) in old], "lr": lr},
            {"params": [p for p in trained if id(p) not in old], "lr": lr * head_factor},
        ]


def _head(dim: int, num_classes: int, hidden: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(dim, hidden, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(hidden),
        nn.ReLU(),
        nn.Dropout2d(dropout),
        nn.Conv2d(hidden, num_classes, kernel_size=1),
    )


def upsampled(logits: Tensor, size: tuple[int, int], aligned: bool = True) -> Tensor:
    """Upsamples logits to ``size``, bilinearly.

    On a GPU by two matrix products: torch's backward pass takes 3 ms for 4 × 448² there, and adds
    in an order that varies.

    Args:
        logits: (B, classes, h, w).
        size: height and width of the result.
        aligned: if true, the first and last logits lie on the first and last pixels, as in EMANet;
            if false, logits lie in the centres of their patches, as in a ViT.
    """
    if not logits.is_cuda:
        return F.interpolate(logits.float(), size, mode="bilinear", align_corners=aligned)
    sides = zip(logits.shape[-2:], size)
    rows, columns = (_weights(n, m, aligned, logits.device) for n, m in sides)
    with torch.autocast("cuda", enabled=False):
        return rows @ (logits.float() @ columns.mT)


def _weights(n: int, m: int, aligned: bool, device: torch.device) -> Tensor:
    """Returns the weights of n numbers in m that are interpolated between them, (m, n)."""
    one_hot = torch.eye(n, device=device, dtype=torch.float32)[None]
    return F.interpolate(one_hot, m, mode="linear", align_corners=aligned)[0].mT


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
