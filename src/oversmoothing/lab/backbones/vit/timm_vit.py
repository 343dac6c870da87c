"""Builds timm's plain vision transformers; importing this module imports timm."""

import timm
import torch
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import timm_models
from oversmoothing.lab.backbones.options import check_positive, check_rate


def create(
    name: str,
    drop_path: float = 0.0,
    depth: int | None = None,
    image_size: int | None = None,
    patch: int | None = None,
) -> VisionTransformer:
    """Builds a vision transformer of timm without classifier, with random weights, for any size.

    Args:
        name: timm's name of the model, with or without the tag of its weights.
        drop_path: rate of stochastic depth in the last block; grows linearly from 0 in the first.
        depth, image_size, patch: number of blocks, sides of the images and of a patch in pixels;
            None: the model's own.

    Raises:
        InputError: the model is not a plain vision transformer, or a size is out of range.
    """
    check_rate("drop_path", drop_path)
    check_positive(depth=depth, image_size=image_size, patch=patch)
    network = timm_models.create(
        name,
        num_classes=0,
        dynamic_img_size=True,
        drop_path_rate=drop_path,
        depth=depth,
        img_size=image_size,
        patch_size=patch,
    )
    if not _is_plain(network):
        raise InputError(
            f"backbone.name: {name} is not a plain vision transformer (pre-norm blocks, position "
            f"embedding, no pooling of its own); choose for example deit_small_patch16_224"
        )
    if (image_size, patch) != (None, None):
        _require_whole_patches(network)
    return network


def require_own(network: VisionTransformer, name: str) -> None:
    """Checks that a network has the sizes of the model's weights.

    Raises:
        InputError: depth, image_size or patch differ from the model's own.
    """
    with torch.device("meta"):
        own = _sizes(timm.create_model(name, num_classes=0))
    for key, got in _sizes(network).items():
        if got != own[key]:
            raise InputError(
                f"backbone.{key}: the weights of {name} are for {own[key]}, got {got}; set it to "
                "null, or backbone.weights=none to start at random"
            )


def _sizes(network: VisionTransformer) -> dict[str, int]:
    embed = network.patch_embed
    depth, side, patch = len(network.blocks), embed.img_size[0], embed.patch_size[0]
    return {"depth": depth, "image_size": side, "patch": patch}


def _require_whole_patches(network: VisionTransformer) -> None:
    sizes = _sizes(network)
    if sizes["image_size"] % sizes["patch"]:
        raise InputError(
            f"backbone.image_size: expected a multiple of the patch, {sizes['patch']}, "
            f"got {sizes['image_size']}; change it or backbone.patch"
        )


def _is_plain(network: nn.Module) -> bool:
    """Returns whether ``vit.ViT`` uses every parameter of a network."""
    return (
        isinstance(network, VisionTransformer)
        and all(type(b) is Block and type(b.attn) is Attention for b in network.blocks)
        and all(block.attn.gate is None for block in network.blocks)
        and network.pos_embed is not None
        and network.attn_pool is None
        and isinstance(network.fc_norm, nn.Identity)
    )
