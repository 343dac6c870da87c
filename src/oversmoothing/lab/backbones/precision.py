"""Replaces functions of torch that are slow, or not deterministic, in some precision or device."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


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
