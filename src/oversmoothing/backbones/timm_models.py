"""Builds networks of timm by name; importing this module imports timm."""

import difflib
from collections.abc import Collection
from typing import Any

import timm
from torch import nn

from oversmoothing.errors import InputError


def check_name(name: str, known: Collection[str], kind: str, example: str) -> str:
    """Returns a model's name without the tag of its weights.

    Raises:
        InputError: the name is not known; the message tells the kind of networks and an example.
    """
    base = name.split(".")[0]
    if base not in known:
        close = difflib.get_close_matches(base, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"for example {example}"
        raise InputError(f"backbone.name: expected {kind} of timm, got {name!r}; {hint}")
    return base


def create(name: str, **options: Any) -> nn.Module:
    """Builds a network with random weights; ``options`` are those of ``timm.create_model``.

    Raises:
        InputError: the model does not have the tag in its name.
    """
    try:
        return timm.create_model(name, **options)
    except RuntimeError as error:
        base = name.split(".")[0]
        tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{base}.*")]
        raise InputError(f"backbone.name: {error} expected one of {', '.join(tags)}") from error
