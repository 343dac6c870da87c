"""Checks of options that several aggregators have."""

from typing import Any, get_args

import torch
from torch import Tensor

from oversmoothing.errors import InputError


def check_choice(option: str, value: object, choices: Any) -> None:
    """Raises InputError if an option is none of the texts of a ``Literal``."""
    if value not in get_args(choices):
        known = ", ".join(get_args(choices))
        raise InputError(f"aggregator.{option}: expected one of {known}, got {value!r}")


def check_finite(option: str, value: float | Tensor, hint: str = "") -> None:
    """Raises InputError unless a number, or every entry of a tensor, is finite."""
    if not torch.as_tensor(value, dtype=torch.float64).isfinite().all():
        raise InputError(f"aggregator.{option}: expected a finite number, got {value}{hint}")
