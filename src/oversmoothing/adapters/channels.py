"""Finds the number of channels of a module's output."""

from collections.abc import Sequence

from torch import Tensor, nn

from oversmoothing.adapters.sites import Factory
from oversmoothing.aggregators.base import wants_dim
from oversmoothing.errors import InputError

SIZES = ("out_channels", "channels", "out_features")  # attributes with the channels of an output


def channels(module: nn.Module, factories: Sequence[Factory]) -> int:
    """Returns the number of channels of a module's output; 0 if no factory asks for it.

    Raises:
        InputError: the number cannot be found.
    """
    if not any(map(wants_dim, factories)):
        return 0
    if found := width(module):
        return found
    raise InputError(
        f"aggregator: cannot tell how many channels {type(module).__name__} has; give a factory "
        "that knows, for example functools.partial(ContraNorm, dim=64)"
    )


def width(module: nn.Module) -> int:
    """Returns the number of channels of a module's output, from its attributes or its last layer.

    It is 0 if neither tells it.
    """
    heads = module.heads if getattr(module, "concat", False) and hasattr(module, "heads") else 1
    for part in (module, *reversed(list(module.modules()))):
        for name in SIZES:
            if isinstance(size := getattr(part, name, None), int):
                return size * heads if part is module else size
        weight = getattr(part, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() == 1:  # a norm
            return len(weight)
    return 0
