"""What users rely on beside numbers: ids of all published runs, and the API.

    python tests/golden/golden.py ids api

Each gives plain data that are compared with a committed file.
"""

import hashlib
import inspect
from collections.abc import Iterable
from typing import Any

from golden_runs import ROOT
from omegaconf import OmegaConf

import oversmoothing as osm
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.papers.cures_cells import study
from oversmoothing.lab.report.tables import load
from oversmoothing.lab.store.identity import run_id

CONFIGS = ROOT / "configs"


def ids() -> dict[str, Any]:
    """Ids of all experiments, and SHA-256 of those of each row of the tables and of the cures."""
    rows: dict[str, list[str]] = {}
    for cell in load(ROOT / "results/expected"):
        if cell.runnable:
            row = "/".join(filter(None, [cell.table, cell.block, cell.key, cell.reading]))
            words = [f"experiment={cell.experiment}", *cell.overrides]
            rows.setdefault(row, []).append(_id(words))
    for place, cell in study().items():
        words = [f"experiment={cell.experiment}", *cell.overrides]
        own = [_id([*words, *candidate]) for candidate in cell.candidates]
        rows.setdefault(f"cures/{place.graph}/{place.network}/{place.method}", []).extend(own)
    experiments = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
    return {
        "experiments": {name: _id([f"experiment={name}"]) for name in experiments},
        "rows": {row: f"{len(own)} cells {_sha(own)}" for row, own in rows.items()},
    }


def _id(words: list[str]) -> str:
    """The id of a command's run and its seeds, such as ``0123456789 0-4``."""
    config = compose_config(words)
    seeds = list(config.seeds)
    in_row = seeds == [*range(seeds[0], seeds[0] + len(seeds))] and len(seeds) > 1
    shown = f"{seeds[0]}-{seeds[-1]}" if in_row else ",".join(map(str, seeds))
    return f"{run_id(config)} {shown}"


def _sha(found: list[str]) -> str:
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def api() -> dict[str, Any]:
    """Signatures of all public names, and keys and values of all options of all groups."""
    functions = {f"metrics.{name}": getattr(osm.metrics, name) for name in osm.metrics.__all__}
    names = {name: getattr(osm, name) for name in osm.__all__ if name != "metrics"} | functions
    return {
        "names": {name: shown for top in names.items() for name, shown in _signatures(*top)},
        "groups": {group: _options(group) for group in sorted(_groups())},
        "run": _leaves({key: v for key, v in _plain([]).items() if not isinstance(v, dict)}),
    }


def _signatures(name: str, value: Any) -> Iterable[tuple[str, str]]:
    """Yields the parameters of a function, or of a class and its public methods."""
    if not callable(value):
        return
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        yield name, _parameters(value)
    for method, own in vars(value).items() if inspect.isclass(value) else ():
        if inspect.isfunction(own) and not method.startswith("_"):
            yield f"{name}.{method}", _parameters(own)
        elif isinstance(own, property | classmethod | staticmethod) and not method.startswith("_"):
            yield f"{name}.{method}", type(own).__name__


def _parameters(function: Any) -> str:
    """Names, kinds and defaults of parameters; types are left to the type checker."""
    signature, empty = inspect.signature(function), inspect.Parameter.empty
    plain = [own.replace(annotation=empty) for own in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=empty))


def _groups() -> list[str]:
    return [path.name for path in CONFIGS.iterdir() if path.is_dir() and path.name != "hydra"]


def _options(group: str) -> dict[str, Any]:
    """Keys and values of each option; experiments set keys of other groups, which ids cover."""
    names = sorted(path.stem for path in (CONFIGS / group).glob("[!_]*.yaml"))
    if group == "experiment":
        return dict.fromkeys(names, {})
    return {name: _leaves(_plain([f"{group}={name}"])[group]) for name in names}


def _plain(words: list[str]) -> dict[str, Any]:
    return OmegaConf.to_container(compose_config(words), resolve=False)


def _leaves(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Full key -> value; the paths of classes may change."""
    found: dict[str, Any] = {}
    for key, value in node.items():
        inner = isinstance(value, dict) and value
        found |= _leaves(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return {key: value for key, value in found.items() if not key.endswith("_target_")}
