"""Options that several backbones have; a value out of range raises InputError."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError


class Replacing(TorchFunctionMode):
    """A context in which a function of torch is replaced.

    Args:
        function: of torch.
        by: called in its place, outside this context.
    """

    def __init__(self, function: Callable, by: Callable) -> None:
        super().__init__()
        self.function, self.by = function, by

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        called = self.by if function is self.function else function
        return called(*args, **(kwargs or {}))


def in_bf16_on_cpu(device: torch.device) -> bool:
    """Whether a CPU runs under autocast to bf16, outside ``torch.compile``."""
    bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return device.type == "cpu" and bf16 and not torch.compiler.is_compiling()


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet, RGB


def check_positive(**sizes: int | None) -> None:
    """Checks that whole numbers are 1 or more; None passes."""
    require("backbone", **at_least(1, **sizes))


def check_rate(key: str, rate: float | Tensor) -> None:
    """Checks that a rate of dropout, or each of several, is 0 or more and below 1."""
    rates = torch.as_tensor(rate, dtype=torch.float64)
    if not ((rates >= 0) & (rates < 1)).all():
        raise InputError(f"backbone.{key}: expected a rate from 0 to below 1, got {rate}")


def per_channel(key: str, values: list[float]) -> Tensor:
    """Returns the option ``mean`` or ``std`` as a tensor (3, 1, 1); its values are of R, G, B."""
    if len(values) != 3 or key == "std" and not min(values) > 0:
        above = ", above 0" if key == "std" else ""
        raise InputError(f"backbone.{key}: expected three numbers{above}, got {values}")
    return torch.tensor(values, dtype=torch.float32).view(3, 1, 1)
