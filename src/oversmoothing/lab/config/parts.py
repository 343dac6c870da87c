"""Checks a composed config as far as possible without building anything."""

import logging
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oversmoothing.errors import InputError
from oversmoothing.lab.config import source, types
from oversmoothing.lab.config.compose import one_line
from oversmoothing.lab.config.types import argument_problems, signature_problems

# Part -> arguments that its target gets at run time, not from its YAML; None: the task adds them.
PARTS = {
    "task": (),
    "data": (),
    "backbone": None,
    "aggregator": ("dim",),
    "then": ("dim",),
    "trainer": (),
    "logger": ("folder", "config"),
}
OPTIONAL = ("data", "backbone", "trainer", "logger")  # may be empty
THREADS = 10_000  # with more, OpenMP crashes
COMPLETED = ("backbone", "aggregator", "then", "logger")  # need _partial_: completed at run time

logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # errors are reported here instead


def settings(
    seeds: list[int],
    device: str,
    threads: int | None,
    deterministic: Literal["off", "warn", "error"],
    checkpoint_seconds: float,
    optimize: str | None,
    paths: dict,
    matmul: Literal["medium", "high", "highest"] = "high",  # missing in configs of earlier runs
) -> None:
    """Declares the names and types of the top level of a config; it is never called."""


def paths(data: str, outputs: str, cache: str) -> None:
    """Declares the names and types of the node ``paths``; it is never called."""


def config_problems(config: DictConfig, imported: bool = True) -> dict[str, list[str]]:
    """Maps every part and top-level key with mistakes to one line for each mistake.

    Args:
        imported: import the ``_target_`` of every part. If false, signatures are read from sources,
            and a part whose source does not show its signature is not checked.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        return {"task": [f"an interpolation ${{…}} cannot be resolved: {one_line(error)}"]}
    top = {key: value for key, value in plain.items() if key not in PARTS}
    lines = argument_problems("", settings, top)
    if not lines:
        lines = argument_problems("paths.", paths, plain["paths"])
        lines = lines or _out_of_range(top)
    lines += [line for part in PARTS for line in _part_problems(part, plain.get(part), imported)]
    missing = OmegaConf.missing_keys(config)
    lines = [line for line in lines if line.partition(":")[0] not in missing]
    lines += [f"{key}: needs a value; add {key}=…" for key in sorted(missing)]
    problems: dict[str, list[str]] = {}
    for line in lines:
        problems.setdefault(re.split(r"[.:]", line)[0], []).append(line)
    return problems


def run_problems(config: DictConfig) -> list[str]:
    """Lists the mistakes in the parts of a stored config, one line each."""
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        return [f"an interpolation ${{…}} cannot be resolved: {one_line(error)}"]
    parts = {part: plain.get(part) for part in PARTS if part != "logger"}
    return [line for part in parts for line in _part_problems(part, parts[part], imported=True)]


def _out_of_range(plain: dict[str, Any]) -> list[str]:
    seeds, threads, least = plain["seeds"], plain["threads"], plain["checkpoint_seconds"]
    problems = []
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > 2**63 - 1:
        problems.append(
            f"seeds: expected a list of different whole numbers from 0 to 2^63 − 1, got {seeds}"
        )
    if threads is not None and not 1 <= threads <= THREADS:
        expected = f"1 to {THREADS:,}, or null for torch's choice"
        problems.append(f"threads: expected {expected}, got {threads}")
    if least < 0:
        problems.append(f"checkpoint_seconds: expected 0 or more, got {least}")
    for name, path in plain["paths"].items():
        if not path or path.startswith("~"):
            problems.append(f"paths.{name}: expected a path, got {path!r}; write $HOME for ~")
    return problems


def _part_problems(part: str, node: Any, imported: bool) -> list[str]:
    if not node and part in OPTIONAL:
        return []
    if not isinstance(node, dict) or "_target_" not in node:
        keys = [*node] if isinstance(node, dict) and part in OPTIONAL else []
        way = f"; with {part}=none, leave out {part}.{keys[0]}" if keys else ""
        return [f"{part}: its YAML names no _target_, the class or function to use{way}"]
    if node.get("_partial_", False) is not (part in COMPLETED):
        how = (
            "expected true: more arguments come"
            if part in COMPLETED
            else "leave it out: it is built"
        )
        return [f"{part}._partial_: {how} when it is run"]
    return _node_problems(part, node, PARTS[part], imported)


def _node_problems(
    key: str, node: dict[str, Any], given: tuple[str, ...] | None, imported: bool
) -> list[str]:
    """Lists the mistakes in a node with a ``_target_`` and in the nodes inside it."""
    if not isinstance(name := node["_target_"], str):
        return [f"{key}._target_: expected module.Class, got {name!r}"]
    if name.split(".")[0] in sys.stdlib_module_names:
        return [f"{key}._target_: {name} belongs to Python itself; expected a class of your own"]
    try:
        found = types.signature(_target(key, name)) if imported else source.signature(name)
    except InputError as error:
        return error.lines
    values = {key: value for key, value in node.items() if key not in ("_target_", "_partial_")}
    lines = signature_problems(f"{key}.", found, values, given) if found else []
    inner = {k: v for k, v in values.items() if isinstance(v, dict) and "_target_" in v}
    for name, child in inner.items():
        lines += _node_problems(f"{key}.{name}", child, (), imported)
    return lines


def _target(key: str, name: str) -> Callable:
    try:
        target = get_object(name)
    except Exception as error:  # importing the user's module may raise any error
        line = f"{key}._target_: {name} cannot be imported ({reason(error)})"
        raise InputError(line) from error
    if not callable(target):
        raise InputError(f"{key}._target_: {name} is not a class or function")
    return target


def reason(error: BaseException) -> str:
    """Returns the message of an error in a user's module, and the line that raised it."""
    cause = error.__cause__ or error
    line = f"{type(cause).__name__}: {one_line(cause)}"
    if isinstance(cause, ModuleNotFoundError):
        parent, _, name = (cause.name or "").rpartition(".")
        hint = f"{line}; the folder of a module of yours must be on PYTHONPATH"
        return f"{parent} has no {name}" if parent in sys.modules else hint
    frames = traceback.extract_tb(cause.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return f"{line}, {Path(own[-1].filename).name} line {own[-1].lineno}" if own else line


def _is_library(filename: str) -> bool:
    ours = Path(filename).is_relative_to(Path(__file__).parent)
    return ours or "site-packages" in filename or "importlib" in filename
