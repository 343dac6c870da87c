"""The names of the keys of a config: which exist, and what a mistaken one was meant to be."""

from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import closest, meant

Keys = dict[str, Any]  # dotted key -> value, for inner nodes as well as for leaves


def flat(node: dict[str, Any], prefix: str = "") -> Keys:
    """Lists the keys of a config, at every depth, by their dotted names."""
    found: Keys = {}
    for name, value in node.items():
        found[f"{prefix}{name}"] = value
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
    return found


def keys_of(config: DictConfig) -> Keys:
    """Maps dotted keys to values; interpolations stay unresolved."""
    return flat(OmegaConf.to_container(config, resolve=False))


def is_new(key: str, keys: Keys) -> bool:
    """Whether a key is added to a mapping that is empty in its YAML, such as ``options: {}``."""
    parent = key.rpartition(".")[0]
    return bool(parent) and (keys.get(parent) == {} or is_new(parent, keys))


def key_problem(override: Override, keys: Keys) -> str | None:
    """Returns the mistake in the name of a key; None if it is valid."""
    key, value = override.key_or_group, override.value()
    names = [k for k, v in flat({key: value}).items() if not (isinstance(v, dict) and v)]
    if unknown := [name for name in names if name not in keys and not is_new(name, keys)]:
        opened = override.is_add() or override.is_force_add()  # Hydra has open dictionaries
        ours = not (override.is_hydra_override() and opened)
        return _no_such_key(unknown[0], keys) if ours else None
    if is_new(key, keys):
        return None
    if override.is_add():
        return f"+{key}: it exists already; write {key}=… without the +"
    node = keys[key]
    if value is None and "." in key and isinstance(node, dict) and "_target_" in node:
        return None  # null turns off a part of a part
    if keys[key] == {} or not any(isinstance(keys.get(name), dict) for name in names):
        return None  # an empty mapping takes any keys, in one mapping or one by one
    for place in keys["hydra.runtime.choices"]:
        if node_of(place) == key:
            return f"{key}: choose its option by {place}=…, set its keys by {key}.…=…"
    return f"{key}: it is not a value; set one of its keys: {', '.join(_leaves(keys, f'{key}.'))}"


def _no_such_key(key: str, keys: Keys) -> str:
    """Returns the error; it suggests a similar key in the same part, or else elsewhere."""
    is_hydra, chosen = key.startswith("hydra."), keys["hydra.runtime.choices"]
    part, _, leaf = key.rpartition(".") if is_hydra else key.partition(".")
    groups = [place for place in chosen if "/" not in place]
    if is_hydra:
        own = [name for name in keys if name.rpartition(".")[0] == part]
    else:
        at_top = [name for name in _leaves(keys) if "." not in name]
        own = _leaves(keys, f"{part}.") if leaf else [*groups, *at_top]
    near = {name.removeprefix(f"{part}."): name for name in own}
    last = {} if is_hydra else {name.rpartition(".")[2]: name for name in _leaves(keys)}
    option = "".join(f" with {place}={name}" for place, name in chosen.items()
                     if node_of(place) == part)  # fmt: skip
    line = f"{key}: no such key{option}"
    if close := closest(leaf or key, near) or closest(key.rpartition(".")[2], last, cutoff=0.75):
        return f"{line}; did you mean {close!r}?"
    top = sorted({name.split(".")[0] for name in [*keys, *groups]})
    if not leaf:
        return f"{line}; known: {', '.join(top)}"
    if part.split(".")[0] not in top:
        return f"{line}; {meant(part, top)}"
    return f"{line}; known: {', '.join(own)}" if own else f"{line}, which has no keys"


def _leaves(keys: Keys, prefix: str = "") -> list[str]:
    """Lists the dotted names of all keys that hold a value, without Hydra's own."""
    own = {k: v for k, v in keys.items() if k.startswith(prefix) and not k.startswith("hydra.")}
    return [k for k, v in own.items() if not (isinstance(v, dict) or "._" in f".{k}")]


def node_of(place: str) -> str:
    """Returns the node that a choice sets: ``then`` for ``aggregator@then``."""
    return place.lstrip("+~").split("@")[-1]
