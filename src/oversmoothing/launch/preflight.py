"""What is wrong with a composed config that only building its parts shows."""

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
from oversmoothing.config.parts import config_problems, reason
from oversmoothing.errors import InputError
from oversmoothing.launch.execute import build, finished
from oversmoothing.store.environment import device

AGGREGATORS = ("aggregator", "then")
Known = dict[str, list[str]]  # what was built before, in this command -> what it said


def all_problems(config: DictConfig, unclear: set[str], known: Known) -> list[str]:
    """One line for every mistake in a composed config.

    Parts whose names and types are right are built once, and the network on a toy; a finished run
    is not built again.

    Args:
        config: composed.
        unclear: parts that are not those that were asked for.
        known: from earlier configs of the same command; added to.
    """
    found = config_problems(config)
    lines = [line for part in found.values() for line in part]
    if {"task", "experiment"} & {*found, *unclear} or not (found or unclear) and finished(config):
        return lines
    wanted = inspect.signature(get_object(config.task._target_)).parameters
    lines += _fit_problems(config, set(wanted), unclear)
    broken = {*found, *unclear} | ({"data"} if "paths" in found else set())
    for part, step in _steps(config, set(wanted)).items():
        if part not in broken:
            said = _said(part, config, step, known)
            broken |= {part} if said else set()
            lines += said
    return lines + _network_problems(config, broken)


def _fit_problems(config: DictConfig, wanted: set[str], unclear: set[str]) -> list[str]:
    """Groups that a task needs and lacks, or has no use for."""
    name, problems = _module(config.task), []
    for group in ("backbone", "trainer", "data"):
        if group in wanted and not config[group]:
            problems.append(f"{group}: task {name} needs one; choose with {group}=…")
        if group not in wanted and config[group]:
            problems.append(f"{group}: task {name} has no use for it; add {group}=none")
    return [line for line in problems if line.split(":")[0] not in unclear]


def _steps(config: DictConfig, wanted: set[str]) -> dict[str, Callable[[], object]]:
    """Part -> what tries it."""
    parts = [part for part in ("data", "trainer") if part in wanted and config[part]]
    steps: dict[str, Callable[[], object]] = {p: partial(build, config[p]) for p in parts}
    steps |= {part: partial(_make, config[part]) for part in AGGREGATORS}
    return steps | {"device": partial(_try_device, config.device)}


def _said(part: str, config: DictConfig, step: Callable[[], object], known: Known) -> list[str]:
    """Complaints of a part, looked up where another config of the command has the same part."""
    text = json.dumps([part, OmegaConf.to_container(config, resolve=True)[part]])
    if text not in known:
        known[text] = _complaints(part, config, step)
    return known[text]


def _complaints(part: str, config: DictConfig, step: Callable[[], object]) -> list[str]:
    try:
        step()
    except InputError as error:
        line = str(error)
        own = part == "then" and line.startswith("aggregator.")  # no class knows its place
        return [line.replace("aggregator.", "then.", 1) if own else line]
    except Exception as error:  # a bug in the user's own class
        return [f"{part}: {config[part]._target_} cannot be built ({reason(error)})"]
    return []


def _make(node: DictConfig) -> None:
    made = make(build(node), dim=4)
    if not isinstance(made, Aggregator) or not hasattr(made, "site"):
        raise InputError(
            f"aggregator._target_: {node._target_} is no aggregator; it must derive from Inside, "
            "After or Instead of oversmoothing.aggregators.base"
        )


def _try_device(name: str) -> None:
    chosen = device(name)
    try:
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).split("\n")[0].split(". ")[0]
        raise InputError(
            f"device: torch cannot use {name!r} here ({why}); use cpu or auto"
        ) from error


def _network_problems(config: DictConfig, broken: set[str]) -> list[str]:
    """A task says by ``probe`` whether it can work with its parts; broken aggregators are left out.

    Args:
        config: whose ``task`` is right.
        broken: parts with complaints.
    """
    probe = getattr(inspect.getmodule(get_object(config.task._target_)), "probe", None)
    wanted = inspect.signature(probe).parameters if probe else {}
    parts = {"backbone", "trainer"} & set(wanted)
    if not probe or parts & broken or not all(config[part] for part in parts):
        return []
    built: dict[str, Any] = {part: build(config[part]) for part in parts}
    left_out = broken & set(AGGREGATORS)
    built["aggregators"] = [
        NoAggregator if part in left_out else build(config[part]) for part in AGGREGATORS
    ]
    try:
        own = build(config.task, _partial_=True).keywords  # nodes inside are built
        built |= {key: value for key, value in own.items() if key in wanted}
        probe(**{name: part for name, part in built.items() if name in wanted})
    except InputError as error:
        return [str(error)] if not left_out or str(error).startswith("backbone.") else []
    except TypeError as error:
        backbone, why = config.backbone._target_.split(".")[-1], str(error).splitlines()[0]
        return [
            f"backbone: {backbone} does not fit task {_module(config.task)} ({why}); "
            "choose another with backbone=…"
        ]
    except Exception as error:  # a bug in the user's own class
        return [f"backbone: {config.backbone._target_} cannot be built ({reason(error)})"]
    return []


def _module(task: DictConfig) -> str:
    """``oversmoothing.tasks.nodes.task.run`` -> nodes."""
    return ("." + task._target_).split(".")[-2]
