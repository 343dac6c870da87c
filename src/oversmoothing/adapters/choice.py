"""The blocks of a model that get aggregators."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import nn

from oversmoothing.adapters.blocks import chosen, find_blocks
from oversmoothing.adapters.layouts import ALBERT
from oversmoothing.errors import InputError


class Choice(NamedTuple):
    """The chosen blocks of a model.

    Args:
        blocks: by name, in their order.
        every: all blocks of the model, chosen or not.
        named: whether the user named the blocks one by one.
    """

    blocks: Mapping[str, nn.Module]
    every: Mapping[str, nn.Module]
    named: bool

    @property
    def last(self) -> nn.Module:
        """The model's last block."""
        return [*self.every.values()][-1]


def choose(model: nn.Module, blocks: str | Sequence[int]) -> Choice:
    """Chooses among the repeated blocks of a model.

    Raises:
        InputError: the model has no repeated blocks, or the chosen ones do not exist.
    """
    try:
        found = {name: module for name, module in model.named_modules() if ALBERT.fits(module)}
        found = found or find_blocks(model)  # which takes the groups of an ALBERT for blocks
    except InputError as error:
        raise InputError(
            f"model: found no repeated blocks in {type(model).__name__}; for a method after "
            "the mixing give where= as a pattern of names of modules that return tokens (B, N, C)"
        ) from error
    names = list(found)
    some = {names[i]: found[names[i]] for i in chosen(blocks, len(found))}
    named = not isinstance(blocks, str) or blocks not in ("all", "last-half")
    return Choice(some, found, named)
