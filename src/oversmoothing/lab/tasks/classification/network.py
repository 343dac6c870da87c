"""A backbone with a linear classifier, trained here or pretrained."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.cnn import CNN
from oversmoothing.lab.backbones.vit import TokenStream, ViT
from oversmoothing.lab.tasks.base import OnBackbone

IMAGENET = 1000  # classes, in the order of their folders' names


class Classifier(OnBackbone):
    """Computes logits from the CLS token, or from the mean of tokens or of a CNN's feature map.

    The mean is used for backbones without CLS token.

    Args:
        backbone: ViT, T2T or CNN.
        num_classes: K.
    """

    def __init__(self, backbone: TokenStream | CNN, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.dim, num_classes)
        nn.init.trunc_normal_(self.head.weight, std=0.02)  # as DeiT's
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor, with_tokens: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Computes logits and, with ``with_tokens``, the last tokens without CLS.

        Shapes: images (B, 3, H, W) in [0, 1] -> (B, K), or (B, K) and (B, N, C).
        """
        features, _ = self.backbone(images)
        logits = self.head(self._pooled(features))
        return (logits, self._tokens(features)) if with_tokens else logits

    def _tokens(self, features: Tensor) -> Tensor:
        if features.ndim == 4:
            return features.flatten(2).mT
        return features[:, self.backbone.prefix :]

    def _pooled(self, features: Tensor) -> Tensor:
        """Pools features to one vector. Shapes: (B, N, C) or (B, C, h, w) -> (B, C)."""
        if features.ndim == 4:
            return features.mean(dim=(2, 3))
        return features[:, 0] if self.backbone.prefix else features.mean(dim=1)


def classifier(backbone: Callable[..., ViT], host: nn.Module) -> Classifier | None:
    """Adds the pretrained ImageNet-1k head to a backbone; None if the weights have no such head.

    Args:
        backbone: the factory that made ``host``; its arguments name the weights.
        host: the backbone with pretrained weights and aggregators.

    Raises:
        InputError: the head in the weights has another size.
    """
    if not isinstance(backbone, partial) or type(host) is not ViT or not host.pretrained:
        return None
    if host.prefix != 1:  # two heads, or none on CLS
        return None
    from oversmoothing.lab.backbones import timm_models  # imports timm, which takes seconds

    plain = timm_models.create_vit(host.name)
    plain.reset_classifier(IMAGENET)
    named = {"weights": "timm", "sha256": None} | backbone.keywords  # ViT's defaults
    given = plain, host.name, named["weights"], named["sha256"]
    if not any(key.endswith("head.weight") for key in pretrained.read(pretrained.file_of(*given))):
        return None
    pretrained.load(*given, heads=())
    network = Classifier(host, IMAGENET)
    network.head.load_state_dict(plain.head.state_dict())
    return network
