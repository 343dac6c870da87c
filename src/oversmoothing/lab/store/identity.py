"""The identity of a run: a hash of the options that affect its numbers.

Runs with equal hashes are the same run. Seeds, device, paths and logger are not hashed. Every part
is hashed under its name in ``identity.yaml``, without the options whose values are the defaults
frozen there. So code can move, options can be added and defaults can change, and existing hashes
stay valid. A part whose random numbers have changed has a mark, which earlier runs lack.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
from importlib import resources
from typing import Any

import yaml
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf

NEUTRAL = ("_target_", "_part_", "_partial_", "root", "cache", "workers", "log_every")  # not hashed
IDENTITY = ("task", "data", "backbone", "aggregator", "then", "trainer")
Node = dict[str, Any]


def run_id(config: DictConfig) -> str:
    """Returns the id of a config's run, ten hex digits."""
    return hashed(identity(config))


def hashed(identity: Node) -> str:
    """Returns the id of an identity."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]


def may_decide(key: str) -> bool:
    """Whether setting a key, such as ``trainer.lr``, can change the identity or the seeds."""
    part, *own = key.split(".")
    neutral = len(own) == 1 and own[0] in NEUTRAL and not own[0].startswith("_")
    return part in (*IDENTITY, "seeds") and not neutral


def ids(config: DictConfig) -> tuple[str, str]:
    """Returns the id of a config's run, and the id that it had before its parts got marks."""
    found = identity(config)
    return hashed(found), hashed({key: _unmarked(node) for key, node in found.items()})


def run_name(config: DictConfig) -> str:
    """Returns the name of a run's folder: task, data, aggregator, id."""
    parts = [short_name(config.task), config.data.get("name") or short_name(config.data)]
    parts += [short_name(config[key]) for key in ("aggregator", "then")]
    shown = [part for part in parts if part not in ("", "none")]
    return "-".join([*shown, run_id(config)])


def facts_of(config: DictConfig) -> dict[str, str]:
    """Returns task, data, method and depth of a run in words."""
    data, depth = config.data or {}, (config.backbone or {}).get("depth")
    parts = [short_name(config[key]) for key in ("aggregator", "then")]
    method = "+".join(part for part in parts if part not in ("", "none")) or "none"
    facts = {"task": short_name(config.task), "data": data.get("name") or short_name(data)}
    facts |= {"method": method, "depth": f"{depth} layers" if depth else ""}
    return {key: value for key, value in facts.items() if value}


def identity(config: DictConfig) -> Node:
    """Returns the part of a config that decides the numbers, in plain types.

    Interpolations stay unresolved, and the folders of data are left out.
    """
    plain = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    nodes = {key: _canonical(plain.get(key) or {}) for key in IDENTITY}
    return {"version": _table()["version"], **nodes}


def part_name(node: Node | DictConfig) -> str:
    """Returns a name such as ``aggregator/centered``; for parts of other packages the path."""
    if not node:
        return ""
    return node.get("_part_") or _names().get(node["_target_"], node["_target_"])


def short_name(node: Node | DictConfig) -> str:
    """Returns the short name of a part, such as ``centered``; the module's name for other parts."""
    name = part_name(node)
    return name.split("/")[-1] if "/" in name else ".".join(name.split(".")[-2:-1])


def class_name(node: Node | DictConfig) -> str:
    """Returns the name of the class of a part, such as ``PairNorm``; empty without a part."""
    name = part_name(node)
    return _table()["parts"].get(name, {}).get("targets", [name])[0].split(".")[-1]


def option(node: Node, key: str) -> Any:
    """Returns an option of a part of an identity, which leaves out frozen defaults."""
    frozen = _table()["parts"].get(part_name(node), {}).get("defaults", {})
    return node.get(key, frozen.get(key))


def current(node: Any) -> Any:
    """Replaces former paths of parts in a config, in plain types, by the current ones.

    Options that a part no longer has are left out if they have the default frozen here.
    """
    if isinstance(node, list):
        return [current(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: current(value) for key, value in node.items()}
    if (name := _names().get(node.get("_target_"))) is not None:
        part = _table()["parts"][name]
        found["_target_"] = part["targets"][0]
        frozen, own = part.get("defaults", {}), inspect.signature(get_method(found["_target_"]))
        former = {key for key in frozen if key not in own.parameters}
        found = {k: v for k, v in found.items() if k not in former or v != frozen[k]}
    return found


@functools.cache
def _table() -> Node:
    text = resources.files("oversmoothing.lab.store").joinpath("identity.yaml").read_text("utf-8")
    return yaml.safe_load(text)


@functools.cache
def _names() -> dict[str, str]:
    """Maps current and former paths of classes and functions to names."""
    parts = _table()["parts"].items()
    return {target: name for name, part in parts for target in part["targets"]}


def _canonical(node: Any) -> Any:
    if isinstance(node, (list, tuple)):
        return [_canonical(item) for item in node]
    if dataclasses.is_dataclass(node):  # a default such as CRF()
        node = {"_target_": f"{type(node).__module__}.{type(node).__name__}", **vars(node)}
    if not isinstance(node, dict):
        return float(node) if isinstance(node, int) and not isinstance(node, bool) else node
    if not (name := part_name(node) if {"_target_", "_part_"} & node.keys() else ""):
        return {key: _canonical(value) for key, value in node.items()}
    about = _table()["parts"].get(name, {})
    known, today = about.get("defaults", {}), "_target_" in node
    given = _defaults(node["_target_"]) | node | about.get("marks", {}) if today else node
    kept = {k: _canonical(v) for k, v in given.items() if not _is_neutral(k, v)}
    own = {k: v for k, v in kept.items() if k not in known or not _is_default(v, known[k])}
    return {"_part_": name, **own}


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value equals a default; None equals an empty mapping."""
    return value == _canonical(default) or (value is None and default == {})


def _unmarked(node: Any) -> Any:
    """Removes the marks from the node of a part in an identity."""
    if not isinstance(node, dict):
        return node
    marks = _table()["parts"].get(node.get("_part_"), {}).get("marks", {})
    return {key: value for key, value in node.items() if key not in marks}


def _is_neutral(key: str, value: Any) -> bool:
    """Whether an option is not hashed, by its key or by its value in ``unnamed_files``."""
    return key in NEUTRAL or value in _table()["unnamed_files"]


@functools.cache
def _defaults(target: str) -> Node:
    """Returns the defaults of a target that YAML can hold, including default factories."""
    made = get_method(current({"_target_": target})["_target_"])
    parameters = inspect.signature(made).parameters.values()
    given = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    fields = dataclasses.fields(made) if dataclasses.is_dataclass(made) else ()
    fresh = {
        f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING
    }
    return {key: value for key, value in (given | fresh).items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    plain = (str, int, float, bool, list, tuple, dict, type(None))
    return isinstance(value, plain) or dataclasses.is_dataclass(value)
