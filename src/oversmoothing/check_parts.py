"""Wrong types, missing data and impossible combinations of a composed config."""

import inspect
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oversmoothing.aggregators.base import make
from oversmoothing.check_names import meant
from oversmoothing.errors import InputError
from oversmoothing.execute import build, device, finished

PARTS = ("task", "data", "backbone", "aggregator", "then", "trainer", "logger")


def settings(
    seeds: list[int],
    device: str,
    threads: int | None,
    deterministic: Literal["off", "warn", "error"],
    checkpoint_seconds: float,
    paths: dict,
) -> None:
    """The top level of a config, as a signature to check it against."""


def part_problems(config: DictConfig) -> list[str]:
    """One line for every mistake: types and names first, then what only building shows."""
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        return [" ".join(str(error).split())]
    problems = _setting_problems({k: v for k, v in plain.items() if k not in PARTS})
    for part in PARTS:
        problems += _argument_problems(part, plain.get(part) or {})
    return problems or _building_problems(config)


def _setting_problems(values: dict[str, Any]) -> list[str]:
    problems = argument_types("", settings, values)
    seeds = values["seeds"]
    if not problems and (not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0):
        problems.append(f"seeds: expected a list of different whole numbers from 0, got {seeds}")
    return problems


def _argument_problems(part: str, node: dict[str, Any]) -> list[str]:
    if "_target_" not in node:
        return []
    try:
        target = get_object(node["_target_"])
    except Exception as error:  # whatever importing the user's module raises
        reason = str(error.__cause__ or error).split("\n")[0]
        return [f"{part}._target_: {node['_target_']} cannot be imported ({reason})"]
    return argument_types(f"{part}.", target, node)


def argument_types(prefix: str, target: Any, values: dict[str, Any]) -> list[str]:
    """Names and types of a config node held against the signature that will take it."""
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    known = inspect.signature(target).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
    problems = []
    for name, value in values.items():
        if name in ("_target_", "_partial_"):
            continue
        if name not in known and not open_ended:
            problems.append(f"{prefix}{name}: no such key; {meant(name, list(known))}")
        elif name in hints and not _fits(value, hints[name]):
            expected = _describe(hints[name])
            problems.append(f"{prefix}{name}: expected {expected}, got {value!r}")
    return problems


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin in (list, tuple):
        inner = arguments[0] if arguments else Any
        return isinstance(value, list) and all(_fits(item, inner) for item in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str, dict, type(None)):
        return isinstance(value, hint)
    return hint is Any or origin is dict and isinstance(value, dict)


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(argument) for argument in arguments)
    if origin is list and arguments:
        return f"a list of {_describe(arguments[0])}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    names |= {type(None): "null", dict: "a mapping"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _building_problems(config: DictConfig) -> list[str]:
    """Builds every part once and the network on a toy; a finished run is not built again."""
    if finished(config):
        return []
    if problems := _fit_problems(config):
        return problems
    steps = [lambda: device(config.device)]
    steps += [partial(build, config[key]) for key in ("data", "trainer") if config[key]]
    steps += [partial(_make, config[key]) for key in ("aggregator", "then")]
    steps += [partial(_probe, config)]
    return problems + [line for step in steps for line in _complaint(step)]


def _complaint(step: Callable[[], object]) -> list[str]:
    try:
        step()
    except InputError as error:
        return [str(error)]
    return []


def _fit_problems(config: DictConfig) -> list[str]:
    """Groups that a task needs and lacks, or has no use for."""
    task = get_object(config.task._target_)
    name, expected = config.task._target_.split(".")[-2], inspect.signature(task).parameters
    problems = []
    for group in ("backbone", "trainer", "data"):
        if group in expected and not config[group]:
            problems.append(f"{group}: task {name} needs one; choose with {group}=…")
        if group not in expected and config[group]:
            problems.append(f"{group}: task {name} has no use for it; add {group}=none")
    return problems


def _make(node: DictConfig) -> None:
    make(build(node), dim=4)


def _probe(config: DictConfig) -> None:
    """A task says by ``probe`` whether it can work with the parts that it is given."""
    probe = getattr(inspect.getmodule(get_object(config.task._target_)), "probe", None)
    if probe is None:
        return
    wanted = inspect.signature(probe).parameters
    built = {key: build(config[key]) for key in ("backbone", "trainer") if key in wanted}
    built["aggregators"] = [build(config[key]) for key in ("aggregator", "then")]
    own = OmegaConf.to_container(config.task, resolve=True)
    built |= {key: value for key, value in own.items() if key in wanted}
    try:
        probe(**{name: part for name, part in built.items() if name in wanted})
    except TypeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"backbone: {config.backbone._target_.split('.')[-1]} does not fit task "
            f"{config.task._target_.split('.')[-2]} ({reason}); choose another with backbone=…"
        ) from error
