"""Vision transformers with the pretrained classifier of their weights."""

from collections.abc import Callable
from functools import partial

from torch import nn

from oversmoothing.backbones import pretrained
from oversmoothing.backbones.vit.vit import ViT
from oversmoothing.tasks.classification.network import Classifier

IMAGENET = 1000  # classes, in the order of their folders' names


def classifier(backbone: Callable[..., ViT], host: nn.Module) -> Classifier | None:
    """Adds the pretrained ImageNet-1k head to a backbone; None if the weights have no such head.

    Args:
        backbone: the factory that made ``host``; its arguments name the weights.
        host: the backbone with pretrained weights and aggregators.

    Raises:
        InputError: weights with a head of another size.
    """
    if not isinstance(backbone, partial) or type(host) is not ViT or not host.pretrained:
        return None
    if host.prefix != 1:  # two heads, or none on CLS
        return None
    from oversmoothing.backbones.vit import timm_vit  # imports timm, which takes seconds

    plain = timm_vit.create(host.name)
    plain.reset_classifier(IMAGENET)
    named = backbone.keywords
    pretrained.load(plain, host.name, named["weights"], named["sha256"], heads=())
    network = Classifier(host, IMAGENET)
    network.head.load_state_dict(plain.head.state_dict())
    return network
