"""Finds unknown keys of a command line, and suggests similar names."""

from typing import Any

from hydra.core.override_parser.types import Override

from oversmoothing.errors import closest, meant

Composed = dict[str, Any]  # dotted key -> value, for inner nodes as well as for leaves


def flat(node: dict[str, Any], prefix: str = "") -> Composed:
    """Lists the keys of a config, at every depth, by their dotted names."""
    found = {f"{prefix}{name}": value for name, value in node.items()}
    for name, value in [*found.items()]:
        found |= flat(value, f"{name}.") if isinstance(value, dict) else {}
    return found


def key_problem(override: Override, composed: Composed) -> str | None:
    """Returns the mistake in the name of a key; None if it is valid.

    Args:
        override: sets the key.
        composed: config of the groups that the command chooses, with Hydra's node.
    """
    key, value = override.key_or_group, override.value()
    names = [k for k, v in flat({key: value}).items() if not (isinstance(v, dict) and v)]
    if unknown := [name for name in names if name not in composed and not is_new(name, composed)]:
        if override.is_hydra_override() and (override.is_add() or override.is_force_add()):
            return None  # Hydra has open dictionaries, such as job.env_set
        return _no_such_key(unknown[0], composed)
    if is_new(key, composed):
        return None
    if override.is_add():
        return f"+{key}: it exists already; write {key}=… without the +"
    node = composed[key]
    if value is None and "." in key and isinstance(node, dict) and "_target_" in node:
        return None  # null turns off a part of a part
    if any(isinstance(composed[name], dict) for name in names):
        return _no_leaf(key, composed)
    return None


def is_new(key: str, composed: Composed) -> bool:
    """Whether a key is added to a mapping that is empty in its YAML, such as ``options: {}``."""
    parent = key.rpartition(".")[0]
    return bool(parent) and (composed.get(parent) == {} or is_new(parent, composed))


def _no_such_key(key: str, composed: Composed) -> str:
    """Returns the error; it suggests a similar key in the same part, or else elsewhere."""
    is_hydra, choices = key.startswith("hydra."), composed["hydra.runtime.choices"]
    part, _, leaf = key.rpartition(".") if is_hydra else key.partition(".")
    everywhere, groups = _leaves(composed), [place for place in choices if "/" not in place]
    if is_hydra:
        own = [name for name in composed if name.rpartition(".")[0] == part]
    else:
        own = _leaves(composed, f"{part}.") if leaf else [*groups, *_top_keys(composed)]
    near = {name.removeprefix(f"{part}."): name for name in own}
    last = {} if is_hydra else {name.rpartition(".")[2]: name for name in everywhere}
    option = "".join(f" with {p}={name}" for p, name in choices.items() if node_of(p) == part)
    line = f"{key}: no such key{option}"
    if close := closest(leaf or key, near) or closest(key.rpartition(".")[2], last, cutoff=0.75):
        return f"{line}; did you mean {close!r}?"
    top = sorted({name.split(".")[0] for name in [*composed, *groups]})
    if not leaf:
        return f"{line}; known: {', '.join(top)}"
    if part.split(".")[0] not in top:
        return f"{line}; {meant(part, top)}"
    return f"{line}; known: {', '.join(own)}" if own else f"{line}, which has no keys"


def _no_leaf(key: str, composed: Composed) -> str:
    for place in composed["hydra.runtime.choices"]:
        if node_of(place) == key:
            return f"{key}: choose its option by {place}=…, set its keys by {key}.…=…"
    keys = ", ".join(_leaves(composed, f"{key}."))
    return f"{key}: it is not a value; set one of its keys: {keys}"


def node_of(place: str) -> str:
    """Returns the node that a choice sets: ``then`` for ``aggregator@then``."""
    return place.lstrip("+~").split("@")[-1]


def _top_keys(composed: Composed) -> list[str]:
    """Lists the keys that stand in no part, such as ``seeds``."""
    return [key for key in _leaves(composed) if "." not in key]


def _leaves(composed: Composed, prefix: str = "") -> list[str]:
    """Lists the dotted names of all keys that hold a value, without Hydra's own."""
    own = {k: v for k, v in composed.items() if k.startswith(prefix) and not k.startswith("hydra.")}
    return [k for k, v in own.items() if not (isinstance(v, dict) or "._" in f".{k}")]
