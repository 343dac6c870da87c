"""The network of the wsss task: a ViT, two classifiers on max-pooled patch tokens, a decoder."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.tasks.base import OnBackbone
from oversmoothing.lab.tasks.wsss.settings import Evaluation

Fusion = Literal["voc", "coco"]


class Outputs(NamedTuple):
    """Shapes: cls and aux (B, K) logits; seg (B, 1 + K, h, w) logits on the patch grid or None."""

    cls: Tensor
    aux: Tensor
    seg: Tensor | None


class Network(OnBackbone):
    """Classifies images and labels their patches.

    The last layer's tokens have passed the final norm; the auxiliary ones are the raw residual
    stream after ``aux_block`` (ToCo). The segmentation loss also trains the backbone.

    Args:
        backbone: ViT.
        num_classes: K, without background.
        aux_block: index of the block; negative ones count from the end.
    """

    def __init__(self, backbone: ViT, num_classes: int, aux_block: int = -3) -> None:
        super().__init__()
        self.backbone = backbone
        self.aux_block = range(backbone.depth)[aux_block]
        self.classifier = nn.Conv2d(backbone.dim, num_classes, kernel_size=1, bias=False)
        self.aux_classifier = nn.Conv2d(backbone.dim, num_classes, kernel_size=1, bias=False)
        self.decoder = LargeFOV(backbone.dim, 1 + num_classes)

    def forward(self, images: Tensor, segment: bool = True) -> Outputs:
        """Computes the logits of both classifiers and of the decoder.

        Args:
            images: in [0, 1]; H and W are divisible by the patch size.
            segment: whether to run the decoder.

        Shapes: images (B, 3, H, W) -> see ``Outputs``.
        """
        last, aux = self.features(images)
        cls = self.classifier(_pooled(last)).flatten(1)
        aux = self.aux_classifier(_pooled(aux)).flatten(1)
        return Outputs(cls, aux, self.decoder(last) if segment else None)

    def features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns feature maps of the last and the auxiliary layer, both (B, C, h, w)."""
        H, W = images.shape[-2:]
        tokens, taken = self.backbone(images, take=(self.aux_block,))
        return tuple(self.backbone.to_map(x, H, W) for x in (tokens, taken[self.aux_block]))

    def class_maps(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns raw CAMs of the last and the auxiliary layer, both (B, K, h, w)."""
        last, aux = self.features(images)
        return self.classifier(last), self.aux_classifier(aux)

    def segment(self, images: Tensor) -> Tensor:
        """Computes segmentation logits (B, 1 + K, h, w)."""
        return self.decoder(self.features(images)[0])


def _pooled(x: Tensor) -> Tensor:
    """Computes the maximum over pixels; unlike in max pooling, gradients are deterministic on GPUs.

    Shapes: (B, C, h, w) -> (B, C, 1, 1).
    """
    return x.flatten(2).max(dim=-1).values[..., None, None]


class LargeFOV(nn.Module):
    """Segmentation head of DeepLab as in ToCo: two dilated 3×3 convolutions, a 1×1 one, no bias.

    Args:
        dim: channels of the feature map.
        num_labels: 1 + K.

    Shapes: (B, C, h, w) -> (B, 1 + K, h, w).
    """

    def __init__(self, dim: int, num_labels: int) -> None:
        super().__init__()
        hidden, wide = 512, {"kernel_size": 3, "padding": 5, "dilation": 5, "bias": False}
        self.layers = nn.Sequential(
            nn.Conv2d(dim, hidden, **wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, hidden, **wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, num_labels, kernel_size=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def segmented(network: Network, image: Tensor, evaluation: Evaluation) -> Tensor:
    """Segments an image at the scales of an evaluation, or at its own size.

    Shapes: image (3, H, W) uint8 -> probabilities (1 + K, H, W), on the network's device.
    """
    device, scales = next(network.parameters()).device, evaluation.ms_scales or [1.0]
    how = (scales, evaluation.ms_size, evaluation.fusion)
    return multi_scale_probabilities(network, to_float(image.to(device)), *how)


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


class Present(NamedTuple):
    """The classes of every image of a batch, padded to the longest list.

    Shapes: index (B, M) int64, foreground class 0…K−1 or 0 as padding; valid (B, M) bool.
    """

    index: Tensor
    valid: Tensor

    def part(self, images: slice) -> "Present":
        """Returns the classes of some images of the batch."""
        return Present(self.index[images], self.valid[images])


def present_classes(labels: Tensor, most: int | None = None) -> Present:
    """Lists the classes of image-level labels (B, K), in ascending order.

    Args:
        labels: (B, K), 0 or 1.
        most: largest number of classes of an image; None: count it, which synchronises with a GPU.
    """
    M = max(1, int((labels > 0).sum(dim=1).max()) if most is None else most)
    order = (labels > 0).int().argsort(dim=1, descending=True, stable=True)[:, :M]
    valid = labels.gather(1, order) > 0
    return Present(order.masked_fill(~valid, 0), valid)


@torch.no_grad()
def multi_scale_cams(
    network: Network, images: Tensor, present: Present, scales: Sequence[float] = (1.0, 0.5, 1.5)
) -> tuple[Tensor, Tensor]:
    """Computes CAMs of the last and the auxiliary layer in [0, 1], with 0 at padded classes.

    .. math:: M_k = \\sum_s relu(\\max(up(w_k · F(x_s)), flip(up(w_k · F(flip x_s)))))

    Each map is then shifted to a minimum of 0 and scaled to a maximum of 1 (ToCo, CVPR 2023, whose
    pipeline the centered paper follows). Only the maps of present classes are computed: the image
    label would set the others to zero.

    Args:
        network: runs in evaluation mode; the mode of each module is restored.
        images: (B, 3, H, W) in [0, 1].
        present: classes to compute.
        scales: of the input; sides are rounded to whole patches.

    Shapes: -> twice (B, M, H, W).
    """
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        total = sum(_one_scale(network, images, present.index, scale) for scale in scales)
    finally:
        for module, training in modes:
            module.training = training
    M = present.index.shape[1]
    shown = present.valid[:, :, None, None]
    return normalised(total[:, :M]) * shown, normalised(total[:, M:]) * shown


def normalised(maps: Tensor) -> Tensor:
    """Shifts every map to a minimum of 0 and divides it by its maximum + 1e-5."""
    maps = maps - maps.amin(dim=(-2, -1), keepdim=True)
    return maps / (maps.amax(dim=(-2, -1), keepdim=True) + 1e-5)


def _one_scale(network: Network, images: Tensor, index: Tensor, scale: float) -> Tensor:
    """Computes relu of the maximum over image and mirror image: last, auxiliary (B, 2M, H, W)."""
    B, _, H, W = images.shape
    patch = network.backbone.patch
    size = [patch * max(1, round(scale * side / patch)) for side in (H, W)]
    scaled = images if size == [H, W] else F.interpolate(images, size, mode="bilinear")
    maps = torch.cat(network.class_maps(torch.cat([scaled, scaled.flip(-1)])), dim=1)
    K = maps.shape[1] // 2
    both = torch.cat([index, index + K], dim=1).repeat(2, 1)[:, :, None, None]
    maps = maps.gather(1, both.expand(-1, -1, *maps.shape[-2:]))
    maps = F.interpolate(maps.float(), (H, W), mode="bilinear")
    return torch.maximum(maps[:B], maps[B:].flip(-1)).relu_()
