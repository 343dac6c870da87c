"""Finds mistakes in a composed config by building its parts."""

import inspect
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from oversmoothing.aggregators.base import Aggregator, make
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError, lack
from oversmoothing.lab.config.instantiate import build
from oversmoothing.lab.config.parts import config_problems, reason
from oversmoothing.lab.launch.execute import finished, known_result, missing_seeds
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.store.identity import short_name
from oversmoothing.lab.tasks.base import Parts, Task

AGGREGATORS = ("aggregator", "then")
Known = dict[str, Any]  # part of an earlier config, as JSON -> its mistakes, or the built part


def started(config: DictConfig) -> tuple[Start | None, list[str]]:
    """Builds all parts of a run and finds its mistakes.

    Returns:
        The start of the run, or None if it is finished or has mistakes; one line for each mistake.
    """
    refused: list[str] = []
    if not config_problems(config) and not _fit_problems(config):
        if not (seeds := missing_seeds(config, known_result(config))):
            return None, _device_problems(config)
        try:
            start = Start(config)
            start.prepare(seeds)
            return start, []
        except InputError as error:  # it may occur only with the real data
            refused = error.lines
        except Exception:  # in a user's class; all_problems reports it
            pass
    return None, all_problems(config, {}) or refused


def all_problems(config: DictConfig, known: Known) -> list[str]:
    """Lists the mistakes in a composed config, one line each.

    Parts with correct names and types are built once; the network is built on the task's toy data.
    A finished run is not built; only its device is checked.

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
    broken = {*found} | ({"data"} if "paths" in found else set())
    values = OmegaConf.to_container(config, resolve=True)
    for part, step in _steps(config).items():
        if part not in broken:
            said = _cached_complaints(part, values, config, step, known)
            broken |= {part} if said else set()
            lines += said
    return lines + _network_problems(config, broken, partial(_built, config, values, known))


def _is_task(config: DictConfig) -> bool:
    target = get_object(config.task._target_)
    return inspect.isclass(target) and issubclass(target, Task)


def _fit_problems(config: DictConfig) -> list[str]:
    """Lists groups that the task needs but lacks, and groups that it does not use."""
    name, needs, problems = short_name(config.task), _needs(config), []
    for group in ("backbone", "trainer", "data"):
        if group in needs and not config[group]:
            problems.append(f"{group}: task {name} needs one; choose with {group}=…")
        if group not in needs and config[group]:
            problems.append(f"{group}: task {name} has no use for it; add {group}=none")
    return problems


def _needs(config: DictConfig) -> tuple[str, ...]:
    return getattr(get_object(config.task._target_), "needs", ())


def _steps(config: DictConfig) -> dict[str, Callable[[], object]]:
    """Maps each part to the function that builds and checks it."""
    wanted = {"data": partial(_accept, config), "trainer": partial(build, config.trainer)}
    parts = [part for part in wanted if part in _needs(config) and config[part]]
    steps: dict[str, Callable[[], object]] = {part: wanted[part] for part in parts}
    steps |= {part: partial(_make, config[part]) for part in AGGREGATORS}
    return steps | {"device": partial(_try_device, config.device)}


def _cached_complaints(
    part: str,
    values: dict[str, Any],
    config: DictConfig,
    step: Callable[[], object],
    known: Known,
) -> list[str]:
    """Returns the mistakes in a part; they are cached for later configs with the same part."""
    text = json.dumps([part, values["task"]["_target_"], values[part]])
    if text not in known:
        known[text] = _complaints(part, config, step)
    return known[text]


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


def _accept(config: DictConfig) -> None:
    """Builds the data and checks that the task accepts them."""
    get_object(config.task._target_).accept(Parts([], data=build(config.data)))


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


def _network_problems(
    config: DictConfig, broken: set[str], built: Callable[[str], Any]
) -> list[str]:
    """Builds the network without the broken parts; returns its error, if any.

    Args:
        config: with a valid ``task``.
        broken: parts with mistakes.
        built: builds a part.
    """
    if "backbone" in _needs(config) and ("backbone" in broken or not config.backbone):
        return []
    left_out, name = broken & {"trainer", *AGGREGATORS}, short_name(config.task)
    try:
        task: Task = built("task")
        toy = _toy(built, task, left_out)
        task.check(task.network(toy, [0], torch.device("cpu")), toy)
    except InputError as error:
        return [str(error)] if not left_out or str(error).startswith("backbone.") else []
    except TypeError as error:
        backbone, why = config.backbone._target_.split(".")[-1], str(error).splitlines()[0]
        line = (
            f"backbone: {backbone} does not fit task {name} ({why}); choose another with backbone=…"
        )
    except Exception as error:  # no memory, or a bug in a user's class
        why = lack(error) or reason(error)
        line = f"backbone: {config.backbone._target_} cannot be built ({why})"
    else:
        return []
    return [] if left_out else [line]


def _toy(built: Callable[[str], Any], task: Task, left_out: set[str]) -> Parts:
    """Builds the parts of a config except the broken ones, with the task's toy data."""
    kept = [NoAggregator if part in left_out else built(part) for part in AGGREGATORS]
    trainer = None if "trainer" in left_out else built("trainer")
    return Parts(kept, built("backbone"), trainer, task.toy)
