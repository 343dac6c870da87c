"""Builds networks of timm by name; importing this module imports timm."""

from typing import Any

import timm
import torch
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.options import check_positive, check_rate


def create(name: str, **options: Any) -> nn.Module:
    """Builds a network with random weights; ``options`` are those of ``timm.create_model``.

    Raises:
        InputError: the model has no weights with the tag in the name.
    """
    try:
        return timm.create_model(name, **options)
    except RuntimeError as error:
        base = name.split(".")[0]
        tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{base}.*")]
        raise InputError(f"backbone.name: {error} expected one of {', '.join(tags)}") from error


def create_vit(
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
    network = create(
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


STRIDES = (8, 16, 32)
HEADS = ("fc.", "classifier.", "conv_head.", "bn2.")  # not used here; at the top level only
MOBILE = "mobilenetv2_"


def create_cnn(
    name: str, output_stride: int, multi_grid: list[int] | None, same_padding: bool
) -> nn.Module:
    """Builds a network with random weights that returns the maps of its last two stages.

    Beyond ``output_stride``, stages dilate their convolutions instead of striding. The first block
    of such a stage keeps the dilation of the stage before.

    Args:
        name: timm's name of the network, with or without the tag of its weights.
        output_stride: stride of the last map in pixels of the image.
        multi_grid: see ``set_multi_grid``; None: no multi-grid.
        same_padding: use TensorFlow's padding, which is uneven at strides.

    Raises:
        InputError: the network does not have an option.

    Shapes: images (B, 3, H, W) -> [(B, C₃, ⌈H/s₃⌉, ⌈W/s₃⌉), (B, C₄, ⌈H/s₄⌉, ⌈W/s₄⌉)].
    """
    _check(name, output_stride, multi_grid, same_padding)
    padding = {"pad_type": "same"} if same_padding else {}
    network = create(
        name, features_only=True, out_indices=(3, 4), output_stride=output_stride, **padding
    )
    if multi_grid is not None:
        set_multi_grid(network.layer4, multi_grid)
    return network


def set_multi_grid(stage: nn.Sequential, factors: list[int]) -> None:
    """Multiplies the dilations in the last stage of a ResNet (DeepLabv3's multi-grid).

    Chen et al., 2017, Rethinking Atrous Convolution, Sec. 3.1. As in EMANet's code, the first
    block keeps half the dilation of the stage. With factors [1, 2, 4] the dilations are 2, 8, 16
    at output stride 8, and 1, 4, 8 at output stride 16.

    Args:
        stage: of timm's ResNet, dilated.
        factors: one for each block; the first is 1.

    Raises:
        InputError: the factors are not of this form.
    """
    if len(factors) != len(stage) or factors[0] != 1 or min(factors) < 1:
        raise InputError(
            f"backbone.multi_grid: expected {len(stage)} whole numbers from 1, one for each block "
            f"of the last stage and 1 for the first, got {list(factors)}; null: no multi-grid"
        )
    for block, factor in zip(stage, factors):
        for conv in block.modules():
            if isinstance(conv, nn.Conv2d) and conv.kernel_size != (1, 1):
                conv.dilation = tuple(factor * d for d in conv.dilation)
                conv.padding = tuple(factor * p for p in conv.padding)


def _check(name: str, output_stride: int, multi_grid: list[int] | None, same_padding: bool) -> None:
    mobile = name.startswith(MOBILE)
    if output_stride not in STRIDES:
        raise InputError(f"backbone.output_stride: expected 8, 16 or 32, got {output_stride}")
    if multi_grid is not None and (mobile or output_stride == 32):
        why = f"{name} lacks the" if mobile else "output stride 32 dilates no"
        raise InputError(f"backbone.multi_grid: expected null, got {list(multi_grid)}: {why} stage")
    if same_padding and not mobile:
        raise InputError(
            f"backbone.same_padding: expected false, got true: timm pads {name} evenly; only "
            "MobileNetV2 has this option"
        )
