"""Mean and standard deviation by which backbones normalise images."""

import torch
from torch import Tensor

from oversmoothing.errors import InputError

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet, RGB


def per_channel(key: str, values: list[float]) -> Tensor:
    """Returns three numbers as a tensor that broadcasts against images.

    Args:
        key: ``mean`` or ``std``, the option of the backbone.
        values: of R, G and B in [0, 1].

    Raises:
        InputError: not three numbers, or a standard deviation of 0 or less.

    Shapes: -> (3, 1, 1).
    """
    if len(values) != 3 or key == "std" and not min(values) > 0:
        above = ", above 0" if key == "std" else ""
        raise InputError(f"backbone.{key}: expected three numbers{above}, got {values}")
    return torch.tensor(values, dtype=torch.float32).view(3, 1, 1)
