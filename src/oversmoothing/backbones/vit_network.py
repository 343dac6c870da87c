"""timm's plain vision transformers."""

import difflib

import timm
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from oversmoothing.errors import InputError

MODULES = ["vision_transformer", "deit"]  # timm's, with the networks that are supported


def create(name: str) -> VisionTransformer:
    """One of timm's vision transformers without classifier, with random weights, for any size.

    Raises:
        InputError: timm has no such model, or it is no plain vision transformer.
    """
    base = name.split(".")[0]
    if not timm.models.is_model_in_modules(base, MODULES):
        known = [model for module in MODULES for model in timm.list_models(module=module)]
        close = difflib.get_close_matches(base, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; for example deit_small_patch16_224"
        raise InputError(
            f"backbone.name: expected a vision transformer of timm, got {name!r}{hint}"
        )
    try:
        network = timm.create_model(name, num_classes=0, dynamic_img_size=True)
    except RuntimeError as error:  # a tag that the model does not have
        tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{base}.*")]
        raise InputError(f"backbone.name: {error} expected one of {', '.join(tags)}") from error
    if not _is_plain(network):
        raise InputError(
            f"backbone.name: {name} is no plain vision transformer (pre-norm blocks, position "
            "embedding, no pooling of its own); choose for example deit_small_patch16_224"
        )
    return network


def _is_plain(network: nn.Module) -> bool:
    """Whether a network is what ``vit.ViT`` runs: no parameter of it would stay unused."""
    return (
        isinstance(network, VisionTransformer)
        and all(type(b) is Block and type(b.attn) is Attention for b in network.blocks)
        and all(block.attn.gate is None for block in network.blocks)
        and network.pos_embed is not None
        and network.attn_pool is None
        and isinstance(network.fc_norm, nn.Identity)
    )
