"""Finds the mistakes in composed configs, and builds the parts of a run.

Names and types come first, for all parts together: they are compared with the signature of each
``_target_``. If they are right, each part is built, which finds values out of range, and then the
network on the task's toy data, which finds parts that do not fit each other.
"""

import inspect
import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oversmoothing.aggregators.base import Aggregator, make
from oversmoothing.errors import Absent, InputError, install, lack
from oversmoothing.lab.arguments import build, signature, signature_problems
from oversmoothing.lab.launch.config import one_line
from oversmoothing.lab.launch.execute import finished
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.store.identity import short_name
from oversmoothing.lab.tasks.base import Parts, Task

# Part -> arguments that its target gets at run time, not from its YAML; None: the task adds them.
PARTS = {
    "task": (),
    "data": (),
    "backbone": None,
    "aggregator": ("dim", "heads", "channels"),
    "then": ("dim", "heads", "channels"),
    "trainer": (),
    "logger": ("folder", "config"),
}
OPTIONAL = ("data", "backbone", "trainer", "logger")  # may be empty
COMPLETED = ("backbone", "aggregator", "then", "logger")  # need _partial_: completed at run time
AGGREGATORS = ("aggregator", "then")
Known = dict[str, Any]  # part of an earlier config, as JSON -> its mistakes, or the built part

logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # errors are reported here instead


# Names and types


def settings(
    seeds: list[int],
    device: str,
    threads: int | None,
    deterministic: Literal["off", "warn", "error"],
    checkpoint_seconds: float,
    optimize: str | None,
    paths: dict,
    matmul: Literal["medium", "high", "highest"],
    diagnose_every: int,
) -> None:
    """Declares the names and types of the top level of a config; it is never called."""


def _paths(data: str, outputs: str, cache: str) -> None:
    """Declares the names and types of the node ``paths``; it is never called."""


def config_problems(config: DictConfig) -> dict[str, list[str]]:
    """Maps every part and top-level key with a wrong name or type to one line for each mistake."""
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        return {"task": [f"an interpolation ${{…}} cannot be resolved: {one_line(error)}"]}
    top = {key: value for key, value in plain.items() if key not in PARTS}
    lines = signature_problems("", signature(settings), top)
    lines = lines or signature_problems("paths.", signature(_paths), plain["paths"])
    lines = lines or _out_of_range(top)
    lines += [line for part in PARTS for line in _part_problems(part, plain.get(part))]
    missing = {*_missing(plain)}
    lines = [line for line in lines if line.partition(":")[0] not in missing]
    lines += [f"{key}: needs a value; add {key}=…" for key in sorted(missing)]
    problems: dict[str, list[str]] = {}
    for line in lines:
        problems.setdefault(re.split(r"[.:]", line)[0], []).append(line)
    return problems


def _missing(node: dict[str, Any], place: str = "") -> Iterator[str]:
    """Names the keys whose value is ``???``."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _missing(value, f"{place}{key}.")
        elif value == "???":
            yield f"{place}{key}"


def run_problems(config: DictConfig) -> list[str]:
    """Lists the mistakes in the parts of a stored config, one line each."""
    found = config_problems(config)
    return [line for part in PARTS if part != "logger" for line in found.get(part, ())]


def _out_of_range(plain: dict[str, Any]) -> list[str]:
    seeds, threads, least = plain["seeds"], plain["threads"], plain["checkpoint_seconds"]
    problems = []
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > 2**63 - 1:
        problems.append(
            f"seeds: expected a list of different whole numbers from 0 to 2^63 − 1, got {seeds}"
        )
    if threads is not None and threads < 1:
        problems.append(f"threads: expected 1 or more, or null for torch's choice, got {threads}")
    if least < 0:
        problems.append(f"checkpoint_seconds: expected 0 or more, got {least}")
    if (every := plain["diagnose_every"]) < 0:
        problems.append(f"diagnose_every: expected 0 (never) or more, got {every}")
    for name, path in plain["paths"].items():
        if not path or path.startswith("~"):
            problems.append(f"paths.{name}: expected a path, got {path!r}; write $HOME for ~")
    return problems


def _part_problems(part: str, node: Any) -> list[str]:
    if not node and part in OPTIONAL:
        return []
    if not isinstance(node, dict) or "_target_" not in node:
        keys = [*node] if isinstance(node, dict) and part in OPTIONAL else []
        way = f"; with {part}=none, leave out {part}.{keys[0]}" if keys else ""
        return [f"{part}: its YAML names no _target_, the class or function to use{way}"]
    if node.get("_partial_", False) is not (part in COMPLETED):
        how = "leave it out: it is built"
        if part in COMPLETED:
            how = "expected true: more arguments come"
        return [f"{part}._partial_: {how} when it is run"]
    return _node_problems(part, node, PARTS[part]) or _missing_package(part, node)


def _missing_package(part: str, node: dict[str, Any]) -> list[str]:
    """Names the package that a logger needs and that is not installed."""
    package = getattr(get_object(node["_target_"]), "package", None)
    if part != "logger" or not package or find_spec(package):
        return []
    return [f"logger: {short_name(node)} needs the package {package}; {install(package)}"]


def _node_problems(key: str, node: dict[str, Any], given: tuple[str, ...] | None) -> list[str]:
    """Lists the mistakes in a node with a ``_target_`` and in the nodes inside it."""
    try:
        target = _target(key, node["_target_"])
    except InputError as error:
        return error.lines
    values = {key: value for key, value in node.items() if key not in ("_target_", "_partial_")}
    lines = signature_problems(f"{key}.", signature(target), values, given)
    for name, child in values.items():
        if isinstance(child, dict) and "_target_" in child:
            lines += _node_problems(f"{key}.{name}", child, ())
    return lines


def _target(key: str, name: Any) -> Callable:
    if not isinstance(name, str):
        raise InputError(f"{key}._target_: expected module.Class, got {name!r}")
    if name.split(".")[0] in sys.stdlib_module_names:
        raise InputError(f"{key}._target_: {name} belongs to Python itself; expected your class")
    try:
        target = get_object(name)
    except Exception as error:  # importing the user's module may raise any error
        line = f"{key}._target_: {name} cannot be imported ({lack(error) or reason(error)})"
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


# What only building shows


def all_problems(config: DictConfig, known: Known) -> list[str]:
    """Lists the mistakes in a composed config, one line each.

    Parts with correct names and types are built once. If all are right, the network is built on the
    task's toy data, and data come last. Of a finished run only the device is checked.

    Args:
        config: composed.
        known: results for earlier configs of the same command; new ones are added.
    """
    found = config_problems(config)
    lines = [line for part in found.values() for line in part]
    if "task" in found:
        return lines
    if not found and finished(config):
        return _device_problems(config)
    if not _is_task(config):
        return [
            *lines,
            f"task._target_: {config.task._target_} is not a task; it must derive from Task "
            "of oversmoothing.lab.tasks.base",
        ]
    lines += _fit_problems(config)
    values, steps = OmegaConf.to_container(config, resolve=True), _steps(config)

    def told(part: str) -> list[str]:
        text = json.dumps([part, config.task._target_, values[part]])
        if text not in known:
            known[text] = _complaints(part, config, steps[part])
        return known[text]

    own = [line for part in steps if part not in {"data", *found} for line in told(part)]
    lines, absent = lines + own, []
    try:
        if not (own or found):
            lines += _network_problems(config, partial(_built, config, values, known))
    except Absent as error:
        absent = [str(error)]
    ready = "data" in steps and not lines  # last, as it may download them
    return lines + absent + (told("data") if ready else [])


def _is_task(config: DictConfig) -> bool:
    target = get_object(config.task._target_)
    return inspect.isclass(target) and issubclass(target, Task)


def _fit_problems(config: DictConfig) -> list[str]:
    """Lists groups that the task needs but lacks, and options that it does not use."""
    name, needs, problems = short_name(config.task), _needs(config), []
    for group in ("backbone", "trainer", "data"):
        if group in needs and not config[group]:
            problems.append(f"{group}: task {name} needs one; choose with {group}=…")
        if group not in needs and config[group]:
            problems.append(f"{group}: task {name} has no use for it; add {group}=none")
    same = config.then and config.then == config.aggregator
    if same and short_name(config.then) != "none":
        problems.append(
            "then: is the aggregator once more, with the same options; leave it out, or change its "
            "options"
        )
    if config.diagnose_every and not get_object(config.task._target_).diagnoses:
        problems.append(f"diagnose_every: task {name} measures no layers; leave it out")
    return problems


def _needs(config: DictConfig) -> tuple[str, ...]:
    return getattr(get_object(config.task._target_), "needs", ())


def _steps(config: DictConfig) -> dict[str, Callable[[], object]]:
    """Maps each part to the function that builds and checks it."""

    def accept() -> None:
        get_object(config.task._target_).accept(Parts([], data=build(config.data)))

    wanted = {"data": accept, "trainer": partial(build, config.trainer)}
    own = [part for part in wanted if part in _needs(config) and config[part]]
    steps: dict[str, Callable[[], object]] = {part: wanted[part] for part in own}
    steps |= {part: partial(_make, config[part]) for part in AGGREGATORS}
    return steps | {"device": partial(_try_device, config.device)}


def _complaints(part: str, config: DictConfig, step: Callable[[], object]) -> list[str]:
    try:
        step()
    except InputError as error:
        line = str(error)
        own = part == "then" and line.startswith("aggregator.")  # the class does not know its key
        return [line.replace("aggregator.", "then.", 1) if own else line]
    except Exception as error:  # no memory, or a bug in a user's class
        why = lack(error) or reason(error)
        return [f"{part}: {config[part]._target_} cannot be built ({why})"]
    return []


def _make(node: DictConfig) -> None:
    """Builds an aggregator for two numbers of channels.

    If the errors differ, they depend on this number; the network will find them with its own.
    """
    narrow, wide = (_refusal(node, dim) for dim in (4, 8))
    if narrow is not None and str(narrow) == str(wide):
        raise narrow


def _refusal(node: DictConfig, dim: int) -> InputError | None:
    try:
        made = make(build(node), dim)
    except InputError as error:
        return error
    if isinstance(made, Aggregator) and hasattr(made, "site"):
        return None
    return InputError(
        f"aggregator._target_: {node._target_} is not an aggregator; it must derive from Inside, "
        "After or Instead of oversmoothing.aggregators.base"
    )


def _device_problems(config: DictConfig) -> list[str]:
    return _complaints("device", config, partial(_try_device, config.device))


def _try_device(name: str) -> None:
    chosen = device(name)
    try:
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).split("\n")[0].split(". ")[0]
        raise InputError(
            f"device: torch cannot use {name!r} here ({why}); use cpu or auto"
        ) from error


def _built(config: DictConfig, values: dict[str, Any], known: Known, part: str) -> Any:
    """Builds a part of a config; configs of the command that share it get the same object."""
    text = json.dumps(["built", values[part]])
    if text not in known:
        known[text] = build(config[part]) if config[part] else None
    return known[text]


def _network_problems(config: DictConfig, built: Callable[[str], Any]) -> list[str]:
    """Builds the network on toy data; returns its error, if any.

    Raises:
        Absent: there is no file of weights.
    """
    if "backbone" in _needs(config) and not config.backbone:
        return []
    try:
        task: Task = built("task")
        toy = Parts([*map(built, AGGREGATORS)], built("backbone"), built("trainer"), task.toy)
        task.check(task.network(toy, [0], torch.device("cpu")), toy)
    except Absent:
        raise
    except InputError as error:
        return [str(error)]
    except TypeError as error:
        backbone, why = config.backbone._target_.split(".")[-1], str(error).splitlines()[0]
        return [
            f"backbone: {backbone} does not fit task {short_name(config.task)} ({why}); choose "
            "another with backbone=…"
        ]
    except Exception as error:  # no memory, or a bug in a user's class
        why = lack(error) or reason(error)
        return [f"backbone: {config.backbone._target_} cannot be built ({why})"]
    return []
