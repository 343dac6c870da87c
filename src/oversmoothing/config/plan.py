"""The combinations that a command line asks for, and what is wrong with how it asks."""

import copy
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from oversmoothing.config.compose import Problems, assemble, base, parse, put
from oversmoothing.config.folders import is_group, needed_to_compose, search_path
from oversmoothing.config.groups import group_problem
from oversmoothing.config.names import key_problem
from oversmoothing.config.sweep import not_swept, values_of

Axes = dict[str, list[Override]]  # what is set -> its values, one unless swept


@dataclass
class Plan:
    """What a command line comes to.

    Args:
        problems: one line each.
        configs: one a combination, composed without what has a problem.
        unclear: parts that are not those that were asked for, so their keys are not known.
        launcher: the option of ``hydra/launcher`` that a sweep is started by.
    """

    problems: list[str]
    configs: list[DictConfig] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)
    launcher: str = "basic"


def plan(words: list[str], multirun: bool) -> Plan:
    """Composes every combination of overrides; nothing is built or run.

    Args:
        words: overrides as on the command line.
        multirun: whether ``-m`` was given; an experiment can ask for it by itself.
    """
    overrides, problems = parse(words)
    folders = search_path(overrides)
    if absent := [f"{path}: no such folder of configs" for path in folders if not path.is_dir()]:
        return Plan(problems + absent)
    parsed = {override.input_line for override in overrides}
    unclear = {_node(word.split("=")[0]) for word in words if word not in parsed}
    axes: Axes = {}
    for override in overrides:
        values, found = _accepted(override, folders)
        if found and is_group(override, folders):
            unclear.add(_node(override.get_key_element()))
        problems += found
        if not found:
            axes[override.get_key_element()] = values
    drawn = Plan(problems, unclear=unclear)
    try:
        _combine(drawn, axes, multirun, folders)
    except Problems as refused:
        drawn.problems += refused.lines
    return drawn


def _accepted(override: Override, folders: list[Path]) -> tuple[list[Override], list[str]]:
    """The values of an override, and what is wrong with it, its key aside."""
    key = override.get_key_element()
    if override.is_delete():
        return [], [f"{key}: nothing can be left out; a group has its none, a key its default"]
    values, found = values_of(override, folders)
    if is_group(override, folders):
        found += [line for value in values if (line := group_problem(value, folders))]
    return values, found


def _combine(plan: Plan, axes: Axes, multirun: bool, folders: list[Path]) -> None:
    """Fills a plan with the configs of all combinations."""
    first = [values[0] for values in axes.values()]
    hydra = _hydra(first, folders)
    if multirun or str(hydra.mode) == "RunMode.MULTIRUN":
        plan.launcher = hydra.runtime.choices["hydra/launcher"]
        axes = _brought(hydra, folders) | axes
    elif swept := [values for values in axes.values() if len(values) > 1]:
        plan.problems += [not_swept(v, is_group(v[0], folders)) for v in swept]
        axes = {key: values[:1] for key, values in axes.items()}
    composing = {k: v for k, v in axes.items() if needed_to_compose(v[0], folders)}
    for choice in itertools.product(*composing.values()):
        composed = plain(base(tuple(override.input_line for override in choice)))
        plan.problems += _lonely(composed, axes)
        for key in [key for key in axes if key not in composing]:
            found = [line for value in axes[key] if (line := key_problem(value, composed))]
            if found and not plan.unclear & {key.lstrip("+~").split(".")[0], "experiment"}:
                plan.problems += found
            if found:
                del axes[key]
    plan.configs = [assemble(list(chosen), folders) for chosen in itertools.product(*axes.values())]


def _hydra(overrides: list[Override], folders: list[Path]) -> DictConfig:
    """Hydra's own node."""
    choices = [o.input_line for o in overrides if needed_to_compose(o, folders)]
    config = copy.deepcopy(base(tuple(choices)))
    for override in overrides:
        own = override.is_hydra_override() and override.input_line not in choices
        if own and not key_problem(override, plain(config)):
            put(config, override)
    return config.hydra


def _brought(hydra: DictConfig, folders: list[Path]) -> Axes:
    """The sweep that an experiment brings along."""
    params = OmegaConf.to_container(hydra.sweeper.get("params") or OmegaConf.create({}))
    overrides, problems = parse([f"{key}={value}" for key, value in params.items()])
    pairs = [(o.get_key_element(), values_of(o, folders)) for o in overrides]
    if problems := problems + [line for _, (_, found) in pairs for line in found]:
        raise Problems([f"hydra.sweeper.params: {line}" for line in problems])
    return {key: values for key, (values, _) in pairs}


def _lonely(composed: dict[str, Any], axes: Axes) -> list[str]:
    """A sweep over experiments cannot hold one that is a sweep by itself."""
    if len(axes.get("experiment", [])) > 1 and composed["hydra"]["sweeper"].get("params"):
        name = composed["hydra"]["runtime"]["choices"]["experiment"]
        return [f"experiment: {name} is a sweep by itself; run it alone"]
    return []


def _node(place: str) -> str:
    """The node that a place fills: then of aggregator@then."""
    return place.lstrip("+~").split("@")[-1]


def plain(config: DictConfig) -> dict[str, Any]:
    """Interpolations as they stand."""
    return OmegaConf.to_container(config, resolve=False)
