"""The network of the wsss task: a ViT, two classifiers on max-pooled patch tokens, a decoder."""

from typing import NamedTuple

from torch import Tensor, nn

from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.tasks.base import OnBackbone


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
