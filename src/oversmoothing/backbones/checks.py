"""Checks of options that several backbones have; a failed check raises InputError."""

from collections.abc import Iterable

from oversmoothing.errors import InputError


def check_positive(**sizes: int | None) -> None:
    """Checks that whole numbers are 1 or more; None passes."""
    for key, size in sizes.items():
        if size is not None and size < 1:
            raise InputError(f"backbone.{key}: expected 1 or more, got {size}")


def check_rate(key: str, rate: float) -> None:
    """Checks that a rate of dropout is 0 or more and below 1."""
    if not 0 <= rate < 1:
        raise InputError(f"backbone.{key}: expected a rate from 0 to below 1, got {rate}")


def check_choice(key: str, value: str, options: Iterable[str]) -> None:
    """Checks that a value is one of the options."""
    if value not in options:
        raise InputError(f"backbone.{key}: expected one of {', '.join(options)}; got {value}")
