"""Finds the folder of a run, and reads its config without running code.

Building a config calls the classes and functions named by ``_target_``, and resolving it evaluates
its interpolations. So a config that was not composed here, such as that of a run folder, may only
name parts of this package, and may only use interpolations of the package's own configs.
"""

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oversmoothing.errors import InputError, meant, reason_of, shortened
from oversmoothing.lab.store.files import CONFIGS
from oversmoothing.lab.store.identity import current, part_targets, short_name

OUTPUTS = Path("outputs")
WAY_OUT = "read the file, and add --trust if you trust it"


def find(run: str | Path) -> Path:
    """Finds the folder of a run by its path, name or id.

    Raises:
        InputError: there is no such run.
    """
    folders = sorted(OUTPUTS.iterdir()) if OUTPUTS.is_dir() else []
    named = [path for path in folders if path.name.endswith(f"-{Path(run).name}")]
    for place in (Path(run), OUTPUTS / run, *named):
        if os.path.isfile(place / "config.yaml"):  # Path.is_file() raises for very long names
            return place
    known = sorted({path.parent.name for path in OUTPUTS.glob("*/weights-seed*.pt")})
    hint = meant(str(run), known) if known else f"there is no trained network below {OUTPUTS}"
    raise InputError(f"{run}: no such run; expected a run's folder, name or id; {hint}")


def config_of(folder: Path, tasks: Sequence[str], trust: bool = False) -> DictConfig:
    """Reads the config of a run; sets ``paths.outputs`` to the folder where the run is now.

    Args:
        folder: of the run.
        tasks: accepted tasks.
        trust: let the config name any class or function.

    Raises:
        InputError: the config is damaged or names foreign code, or the run is of another task.
    """
    path = folder / "config.yaml"
    plain = read_config(path, trust)
    try:
        config = OmegaConf.create(current(plain))
        task = short_name(config.task)
    except (OmegaConfBaseException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: cannot be read as a run's config; run it again") from error
    if task not in tasks:
        measured = (
            "; to measure its layers, train with task.layer_metrics=true" if task == "nodes" else ""
        )
        expected = " or ".join(tasks)
        raise InputError(f"{folder}: a run of task={task}; expected task={expected}{measured}")
    OmegaConf.update(config, "paths.outputs", str(folder.parent))  # it may have been moved
    return config


def read_config(path: Path, trust: bool = False) -> dict[str, Any]:
    """Reads a composed config, interpolations unresolved, without building or importing anything.

    Args:
        path: YAML file.
        trust: allow any class and function.

    Raises:
        InputError: the file is not a config, or names code of other packages.
    """
    try:
        plain = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        if not isinstance(plain, dict) or not plain:
            raise ValueError("it holds no keys")
        problems = [] if trust else [*_foreign(plain)]
    except Exception as error:  # parsers may raise any error for a damaged file
        why = shortened(reason_of(error), 300)
        raise InputError(f"{path}: cannot be read as a run's config ({why})") from error
    if problems:
        raise InputError(f"{path}: {problems[0]}; {WAY_OUT}")
    return plain


def _foreign(node: Any) -> Iterator[str]:
    """Yields a line for everything that a config must not contain."""
    if isinstance(node, str) and "${" in node and node not in _interpolations():
        yield f"interpolation {node!r} is none of this package's"
    if isinstance(node, dict):
        for key in node:
            if str(key).startswith("_") and key not in ("_target_", "_partial_"):
                yield f"key {key!r} would change how parts are built"
        target = node.get("_target_")
        if "_target_" in node and (not isinstance(target, str) or target not in own_targets()):
            yield f"names {target}, which is not part of oversmoothing and could run any code"
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _foreign(child)


@cache
def own_targets() -> frozenset[str]:
    """Returns the current and former dotted names of all parts of this package."""
    return frozenset(re.findall(r"^ *_target_: *(oversmoothing\.[\w.]+)", _texts(), re.M)) | set(
        part_targets()
    )


@cache
def _interpolations() -> frozenset[str]:
    return frozenset(re.findall(r"^ *\w+: *(\S*\$\{\S+)", _texts(), re.M))


@cache
def _texts() -> str:
    """Returns the concatenated YAML files of the package."""
    return "\n".join(path.read_text("utf-8") for path in sorted(CONFIGS.rglob("*.yaml")))
