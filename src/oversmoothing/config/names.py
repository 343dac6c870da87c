"""Unknown keys of a command line, with what was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from hydra.core.override_parser.types import Override

Composed = dict[str, Any]


def meant(name: str, candidates: Iterable[str]) -> str:
    """``did you mean 'x'?`` where a candidate comes close, else the list of candidates."""
    candidates = list(candidates)
    close = _closest(name, {candidate: candidate for candidate in candidates})
    return f"did you mean {close!r}?" if close else f"known: {', '.join(sorted(candidates))}"


def key_problem(override: Override, composed: Composed) -> str | None:
    """What is wrong with the name of a key.

    Args:
        override: that sets it.
        composed: from the groups of the command, Hydra's node included, in plain types.
    """
    key = override.key_or_group
    names = _flat(key, override.value())
    if unknown := [name for name in names if not _has(composed, name)]:
        if override.is_hydra_override() and (override.is_add() or override.is_force_add()):
            return None  # Hydra has open dictionaries: job.env_set for one
        return _no_such_key(unknown[0], composed)
    if override.is_add():
        return f"+{key}: it is there already; write {key}=… without the +"
    node = _node(composed, key)
    if override.value() is None and "." in key and isinstance(node, dict) and "_target_" in node:
        return None  # a part of a part, switched off
    if any(isinstance(_node(composed, name), dict) for name in names):
        return _no_leaf(key, composed)
    return None


def _closest(name: str, candidates: dict[str, str], cutoff: float = 0.6) -> str | None:
    """The value whose key comes closest to a name, whatever the case; None if none is close."""
    lower = {key.lower(): value for key, value in candidates.items()}
    close = get_close_matches(name.lower(), lower, n=1, cutoff=cutoff)
    return lower[close[0]] if close else None


def _no_such_key(key: str, composed: Composed) -> str:
    """Looks for a similar key in the same part, then for one of that name elsewhere."""
    is_hydra = key.startswith("hydra.")
    part, _, leaf = key.rpartition(".") if is_hydra else key.partition(".")
    line = f"{key}: no such key{_of_option(part, composed)}"
    node = _node(composed, part) if leaf else None
    own = [f"{part}.{name}" for name in node or ()] if is_hydra else _leaves(node, f"{part}.")
    everywhere = _leaves(composed)
    groups = [] if leaf else [place for place in _choices(composed) if "/" not in place]
    near = {name.removeprefix(f"{part}."): name for name in own or groups}
    last = {} if is_hydra else {name.rpartition(".")[2]: name for name in everywhere}
    close = _closest(leaf or key, near) or _closest(key.rpartition(".")[2], last, cutoff=0.75)
    if close:
        return f"{line}; did you mean {close!r}?"
    top = {name.split(".")[0] for name in everywhere + groups + [*composed]}
    if leaf and not is_hydra and part not in top:
        return f"{line}; {meant(part, top)}"
    if leaf:
        return f"{line}; known: {', '.join(own)}" if own else f"{line}, which has none"
    return f"{line}; known: {', '.join(sorted(top))}"


def _of_option(part: str, composed: Composed) -> str:
    """`` with aggregator=none``: the choice under which there is no such key."""
    choices = _choices(composed).items()
    return "".join(f" with {place}={name}" for place, name in choices if _filled(place) == part)


def _no_leaf(key: str, composed: Composed) -> str:
    for place in _choices(composed):
        if _filled(place) == key:
            return f"{key}: its option is chosen by {place}=…, its keys by {key}.…=…"
    return f"{key}: holds further keys: {', '.join(_leaves(_node(composed, key), f'{key}.'))}"


def _choices(composed: Composed) -> dict[str, str | None]:
    return composed["hydra"]["runtime"]["choices"]


def _filled(place: str) -> str:
    """The node that a choice fills: then of aggregator@then."""
    return place.split("@")[-1]


def _flat(key: str, value: Any) -> list[str]:
    """Keys that an override sets: ``paths={outputs: a}`` sets paths.outputs."""
    if isinstance(value, dict) and value:
        return [name for k, v in value.items() for name in _flat(f"{key}.{k}", v)]
    return [key]


def _has(composed: Composed, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = _node(composed, parent) if parent else composed
    return isinstance(node, dict) and name in node


def _node(composed: Composed, key: str) -> Any:
    """The value at a dotted key; None where there is none."""
    node = composed
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _leaves(node: Any, prefix: str = "") -> list[str]:
    """Dotted names of a node's keys, without Hydra's own."""
    names = []
    for name, child in node.items() if isinstance(node, dict) else ():
        if isinstance(child, dict) and prefix + name != "hydra":
            names += _leaves(child, f"{prefix}{name}.")
        elif not name.startswith("_") and prefix + name != "hydra":
            names.append(prefix + name)
    return names
