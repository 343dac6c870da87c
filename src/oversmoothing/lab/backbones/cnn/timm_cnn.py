"""Builds timm's ResNets and MobileNetV2s with dilations; importing this module imports timm."""

from torch import nn

from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import timm_models

STRIDES = (8, 16, 32)
HEADS = ("fc.", "classifier.", "conv_head.", "bn2.")  # not used here; at the top level only
MOBILE = "mobilenetv2_"


def create(
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
    network = timm_models.create(
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
