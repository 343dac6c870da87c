"""Reads which patches of an image are padding, and whether a sequence holds several images."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.current import Capture, Current, sentences
from oversmoothing.adapters.groups import Groups, Sentences
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError


class SeveralImages:
    """The tokens of several images in one sequence, which cannot be told apart."""

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Raises InputError, since the aggregator would mix the images."""
        raise InputError(
            "model: it gets several images in one sequence, which a method after the mixing "
            "cannot tell apart; give one image at a time, or apply a method inside, such as "
            "centered"
        )


def patches(mask: Tensor | None) -> Sentences | None:
    """Reads a mask of patches (B, N) or (B, rows, columns): true or 1 for those of the image."""
    return sentences(mask if mask is None else mask.flatten(1))


def sequence(sizes: Tensor | Sequence | None) -> Groups | None:
    """Reads the sizes of all images of a sequence, one row each."""
    return SeveralImages() if sizes is not None and len(sizes) > 1 else None


class ValidPatches(Capture):
    """Reads timm's ``patch_valid`` (B, N), an argument or an entry of the input ``x``.

    Args:
        current: takes the groups.
        names: of the parameters of forward.
        prefix: number of tokens before the patches.
    """

    def __init__(self, current: Current, names: Sequence[str], prefix: int) -> None:
        super().__init__(current)
        self.names, self.prefix = names, prefix

    def groups(self, args: tuple, kwargs: dict[str, Any]) -> Groups | None:
        given = dict(zip(self.names, args)) | kwargs
        inner = given.get("x")
        valid = given.get("patch_valid")
        if valid is None and isinstance(inner, Mapping):
            valid = inner.get("patch_valid")
        return sentences(None if valid is None else F.pad(valid, (self.prefix, 0), value=1))
