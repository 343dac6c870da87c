"""Checks of options; an error names every value out of range, and what was expected."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from oversmoothing.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_SCALE = 16  # of an image
Rule = tuple[object, bool, str]  # value, whether it is valid, what is expected


def require(part: str, **rules: Rule) -> None:
    """Raises one InputError that names every wrong option.

    Args:
        part: prefix of the options in a config, such as ``task.augment``.
        rules: by option, see ``Rule``.
    """
    wrong = {key: rule for key, rule in rules.items() if not rule[1]}
    if wrong:
        lines = (
            f"{part}.{key}: expected {wanted}, got {v}" for key, (v, _, wanted) in wrong.items()
        )
        raise InputError("; ".join(lines))


def of(options: object, *keys: str) -> dict[str, Any]:
    """Returns attributes of an object by name."""
    return {key: getattr(options, key) for key in keys}


def at_least(low: float, **values: float | None) -> dict[str, Rule]:
    """Returns rules for numbers that must be ``low`` or more; None is also valid."""
    return {k: (v, v is None or v >= low, f"{low:g} or more") for k, v in values.items()}


def above(low: float, **values: float) -> dict[str, Rule]:
    """Returns rules for numbers that must be more than ``low``."""
    return {k: (v, v > low, f"above {low:g}") for k, v in values.items()}


def scales(**values: Collection[float] | None) -> dict[str, Rule]:
    """Returns rules for scales of images; None is also valid."""
    expected = f"scales above 0, at most {LARGEST_SCALE}"
    most = LARGEST_SCALE
    return {k: (v, all(0 < s <= most for s in v or ()), expected) for k, v in values.items()}


def probability(**values: float) -> dict[str, Rule]:
    """Returns rules for probabilities."""
    return {k: (v, 0 <= v <= 1, "a probability, 0 to 1") for k, v in values.items()}


def check_choice(key: str, value: object, options: Collection[str]) -> None:
    """Raises InputError unless a value is one of the options.

    Args:
        key: of the value in a config, such as ``backbone.init``.
    """
    if value not in options:
        raise InputError(f"{key}: expected one of {', '.join(options)}, got {value!r}")


def check_tensor(key: str, x: object, expected: str = "a dense tensor of real numbers") -> None:
    """Raises InputError unless x is a dense tensor of real numbers, which are in memory."""
    from torch import Tensor, strided

    if not isinstance(x, Tensor):
        got = type(x).__name__
    elif x.is_nested:
        got = "a nested tensor"
    elif x.is_complex() or x.is_meta or x.layout is not strided:
        got = f"{x.dtype}, {x.layout} on {x.device}"
    else:
        return
    raise InputError(f"{key}: expected {expected}, got {got}; convert it first")


def check_edges(edges: "Tensor", num_nodes: int) -> None:
    """Raises InputError unless edges (2, E) are integers that are nodes from 0 to N − 1."""
    check_tensor("edges", edges, "a tensor of integers (2, E)")
    whole = str(edges.dtype) in ("torch.int32", "torch.int64")
    if edges.dim() != 2 or edges.shape[0] != 2 or not whole:
        raise InputError(
            f"edges: expected integers (2, E), both directions of every edge, got {edges.dtype} "
            f"{tuple(edges.shape)}; give edges=edge_index"
        )
    if edges.numel() and not (edges.min() >= 0 and edges.max() < num_nodes):
        raise InputError(
            f"edges: expected nodes from 0 to {num_nodes - 1}, got {int(edges.min())} to "
            f"{int(edges.max())}; check that edges= belongs to these nodes"
        )
