"""timm's ResNets and MobileNetV2s, dilated, without classifier."""

import difflib

import timm
from torch import nn

from oversmoothing.backbones.cnn.multi_grid import set_multi_grid
from oversmoothing.errors import InputError

STRIDES = (8, 16, 32)
HEADS = ("fc.", "classifier.", "conv_head.", "bn2.")  # of no use here; at the top level only
MOBILE = "mobilenetv2_"


def create(
    name: str, output_stride: int, multi_grid: list[int] | None, same_padding: bool
) -> nn.Module:
    """A network with random weights that returns the maps of its last two stages.

    Strides beyond ``output_stride`` become dilations: of a stage that lost its stride, the first
    block keeps the dilation before it.

    Args:
        name: of timm, optionally with the tag of the weights.
        output_stride: pixels of the image for one of the last map.
        multi_grid: see ``set_multi_grid``.
        same_padding: TensorFlow's padding, which is uneven at strides.

    Raises:
        InputError: timm has no such network, or an option that it cannot have.

    Shapes: images (B, 3, H, W) -> [(B, C₃, ⌈H/s₃⌉, ⌈W/s₃⌉), (B, C₄, ⌈H/s₄⌉, ⌈W/s₄⌉)].
    """
    base = name.split(".")[0]
    _check(base, name, output_stride, multi_grid, same_padding)
    padding = {"pad_type": "same"} if same_padding else {}
    try:
        network = timm.create_model(
            name, features_only=True, out_indices=(3, 4), output_stride=output_stride, **padding
        )
    except RuntimeError as error:  # a tag that the model does not have
        tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{base}.*")]
        raise InputError(f"backbone.name: {error} expected one of {', '.join(tags)}") from error
    if multi_grid is not None:
        set_multi_grid(network.layer4, multi_grid)
    return network


def _check(
    base: str, name: str, output_stride: int, multi_grid: list[int] | None, same_padding: bool
) -> None:
    mobile = timm.list_models(f"{MOBILE}*")
    known = [*timm.list_models(module="resnet"), *mobile]
    if base not in known:
        close = difflib.get_close_matches(base, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; for example resnet50"
        raise InputError(
            f"backbone.name: expected a ResNet or MobileNetV2 of timm, got {name!r}{hint}"
        )
    if output_stride not in STRIDES:
        raise InputError(f"backbone.output_stride: expected 8, 16 or 32, got {output_stride}")
    if multi_grid is not None and (base in mobile or output_stride == 32):
        why = f"{name} has no" if base in mobile else "output stride 32 dilates no"
        raise InputError(
            f"backbone.multi_grid: expected null, got {list(multi_grid)}: {why} stage for it"
        )
    if same_padding and base not in mobile:
        raise InputError(
            f"backbone.same_padding: expected false, got true: timm's {name} is padded evenly; "
            "only MobileNetV2 has the choice"
        )
