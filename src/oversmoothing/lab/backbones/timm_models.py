"""Builds networks of timm by name; importing this module imports timm."""

from typing import Any

import timm
from torch import nn

from oversmoothing.errors import InputError


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
