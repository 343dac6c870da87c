"""Which blocks of a network a config means, and how often they are dropped."""

import re

from oversmoothing.errors import InputError


def chosen(blocks: str | list[int], depth: int) -> list[int]:
    """Indices, from 0, of the blocks that ``backbone.blocks`` names.

    Args:
        blocks: ``all``, ``last-half`` (of 13: 6), ``last-k``, or a list of indices.
        depth: number of blocks.

    Raises:
        InputError: anything else, or no such block.
    """
    if blocks == "all":
        return list(range(depth))
    if blocks == "last-half":
        return list(range(depth - depth // 2, depth))
    last = re.fullmatch(r"last-(\d+)", blocks) if isinstance(blocks, str) else None
    if last and 1 <= int(last[1]) <= depth:
        return list(range(depth - int(last[1]), depth))
    if isinstance(blocks, str) or not blocks:
        raise InputError(
            f"backbone.blocks: expected all, last-half, last-1 to last-{depth}, or a list of "
            f"indices from 0 to {depth - 1}, got {blocks!r}"
        )
    return sorted({place("backbone.blocks", index, depth) for index in blocks})


def place(what: str, index: int, depth: int) -> int:
    """An index counted from 0.

    Args:
        what: names the index in messages.
        index: negative ones count from the last block.
        depth: number of blocks.

    Raises:
        InputError: no such block.
    """
    if isinstance(index, bool) or not isinstance(index, int) or not -depth <= index < depth:
        raise InputError(f"{what}: expected blocks from {-depth} to {depth - 1}, got {index!r}")
    return index % depth


def check_drop_path(rate: float) -> None:
    """Raises InputError where ``backbone.drop_path`` is no rate."""
    if not 0 <= rate < 1:
        raise InputError(f"backbone.drop_path: expected a rate from 0 to below 1, got {rate}")
