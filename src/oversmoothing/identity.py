"""Which runs are the same run.

A run is named by what decides its numbers: the composed config without the parts that do not
(seeds, device, paths, logger), and without every key that has its default. An option added later
with a default therefore leaves the names of all earlier runs as they are.
"""

import dataclasses
import hashlib
import inspect
import json
from dataclasses import MISSING
from typing import Any

from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf

HOW = ("_partial_", "root", "cache", "workers", "log_every")
IDENTITY = ("task", "data", "backbone", "aggregator", "then", "trainer")


def run_id(config: DictConfig) -> str:
    """Ten hex digits that name the run of a composed config."""
    canonical = json.dumps(identity(config), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def run_name(config: DictConfig) -> str:
    """Folder of a run: task, data, aggregator, id."""
    parts = [_last(config.task), config.data.get("name") or _last(config.data)]
    parts += [_last(config[key]) for key in ("aggregator", "then")]
    shown = [part for part in parts if part not in ("", "none")]
    return "-".join([*shown, run_id(config)])


def identity(config: DictConfig) -> dict[str, Any]:
    """The part of a config that decides the numbers, in plain types.

    Interpolations stay unresolved, and paths are left out: where the data lie does not matter.
    """
    plain = OmegaConf.to_container(config, resolve=False)
    return {key: _canonical(plain.get(key) or {}) for key in IDENTITY}


def _canonical(node: Any) -> Any:
    if isinstance(node, (list, tuple)):
        return [_canonical(item) for item in node]
    if not isinstance(node, dict):
        return float(node) if isinstance(node, int) and not isinstance(node, bool) else node
    defaults = _defaults(node["_target_"]) if "_target_" in node else {}
    kept = {key: _canonical(value) for key, value in node.items() if not _is_how(key, value)}
    return {k: v for k, v in kept.items() if k not in defaults or v != _canonical(defaults[k])}


def _is_how(key: str, value: Any) -> bool:
    """Where files lie, who reads them and what is told meanwhile decide no number."""
    return key in HOW or str(value).startswith("${paths.")


def _defaults(target: str) -> dict[str, Any]:
    """Default values of a callable's parameters; of a dataclass also those that it makes anew."""
    made = get_method(target)
    parameters = inspect.signature(made).parameters.values()
    given = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    fields = dataclasses.fields(made) if dataclasses.is_dataclass(made) else ()
    fresh = {f.name: f.default_factory for f in fields if f.default_factory is not MISSING}
    return given | {name: factory() for name, factory in fresh.items()}


def _last(node: DictConfig) -> str:
    """``oversmoothing.tasks.nodes.run`` -> nodes; ``….centered.Centered`` -> centered."""
    return node["_target_"].split(".")[-2] if node and "_target_" in node else ""
