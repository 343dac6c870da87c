"""Parses a command line: composes its configs and finds its mistakes."""

import copy
import itertools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import Problems
from oversmoothing.lab.config.compose import assemble, base, is_composed, is_group, parse, put
from oversmoothing.lab.config.folders import search_path
from oversmoothing.lab.config.groups import group_problem
from oversmoothing.lab.config.names import flat, is_new, key_problem, node_of
from oversmoothing.lab.config.sweep import MOST, not_swept, settings_problems, values_of

Axes = dict[str, list[Override]]  # key or group -> its values; several in a sweep


@dataclass
class Plan:
    """The result of parsing a command line.

    Args:
        problems: one line for each mistake.
        configs: one for each combination of values, composed without the overrides that have a
            mistake. If a sweeper of Hydra chooses the values, there is one for each combination of
            options of groups, for the checks only.
        swept: for each config, the overrides that differ between the runs, in one string.
        unclear: parts whose option is unknown; their keys are not checked.
        new: keys that are added to empty mappings, such as ``backbone.options.heads``; Hydra needs
            a ``+`` before them.
        launcher: option of ``hydra/launcher``.
        sweeper: option of ``hydra/sweeper``.
    """

    problems: list[str]
    configs: list[DictConfig] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)
    launcher: str = "basic"
    sweeper: str = "basic"

    @property
    def by_hydra(self) -> bool:
        """Whether a launcher or sweeper of Hydra starts the runs."""
        return (self.launcher, self.sweeper) != ("basic", "basic")


def plan(words: list[str], multirun: bool) -> Plan:
    """Composes every combination of overrides; builds and runs nothing.

    Args:
        words: overrides as on the command line.
        multirun: whether ``-m`` was given; experiments with a sweep imply it.
    """
    overrides, problems = parse(words)
    folders = search_path(overrides)
    if absent := [f"{path}: no such folder of configs" for path in folders if not path.is_dir()]:
        return Plan(problems + absent)
    parsed = {override.input_line for override in overrides}
    result = Plan(problems, unclear={node_of(w.split("=")[0]) for w in words if w not in parsed})
    try:
        axes = _accepted(result, overrides, folders)
        axes = _swept(result, axes, multirun, folders)
        result.configs = _combined(result, axes)
    except Problems as refused:
        result.problems += refused.lines
    return result


def _accepted(plan: Plan, overrides: list[Override], folders: list[Path]) -> Axes:
    """Returns the overrides without mistakes; a swept group has all its options as values."""
    axes: Axes = {}
    for override in overrides:
        key, values, found = override.get_key_element(), [override], []
        if override.is_delete():
            found = [f"{key}: nothing can be removed; choose another option or value instead"]
        elif is_group(override) or override.is_hydra_override():
            values, found = values_of(override, folders)
        if is_group(override):
            found = found or [x for value in values if (x := group_problem(value, folders))]
            plan.unclear |= {node_of(key)} if found else set()
        plan.problems += found
        if not found:
            axes[key] = values
    return axes


def _swept(plan: Plan, axes: Axes, multirun: bool, folders: list[Path]) -> Axes:
    """Adds the sweep of an experiment, and lists the values of every swept key.

    A sweeper other than Hydra's basic one chooses the values itself; swept keys are then kept as
    given.
    """
    hydra = _hydra([values[0] for values in axes.values()])
    multirun = multirun or str(hydra.mode) == "RunMode.MULTIRUN"
    chosen = {kind: hydra.runtime.choices[f"hydra/{kind}"] for kind in ("launcher", "sweeper")}
    if not multirun:
        idle = [f"hydra/{kind}={name}" for kind, name in chosen.items() if name != "basic"]
        plan.problems += [f"{override}: has no effect on one run; add -m" for override in idle]
    else:
        plan.launcher, plan.sweeper = chosen["launcher"], chosen["sweeper"]
        plan.problems += settings_problems(hydra)
        axes = _experiment_sweep(hydra, folders) | axes
    if plan.sweeper != "basic":
        return axes
    listed: Axes = {}
    for key, values in axes.items():
        if not is_group(values[0]):
            values, found = values_of(values[0], folders)
            plan.problems += found
        if len(values) > 1 and not multirun:
            plan.problems.append(not_swept(values))
        if values:
            listed[key] = values if multirun else values[:1]
    return listed


def _combined(plan: Plan, axes: Axes) -> list[DictConfig]:
    """Checks the names of all keys and composes every combination of values.

    Keys with a wrong name are left out.
    """
    number = math.prod(map(len, axes.values()))
    if number > MOST:
        raise Problems(
            [
                f"-m: expected at most {MOST:,} combinations, got {number:,}; split the sweep into "
                "several commands"
            ]
        )
    refused = _refused_keys(plan, axes)
    kept = [values for key, values in axes.items() if key not in refused]
    fixed = [values for values in kept if not values[0].is_sweep_override()]
    swept = [values for values in fixed if len(values) > 1]
    combinations = itertools.product(*swept)
    plan.swept = [" ".join(one.input_line for one in chosen) for chosen in combinations]
    return [assemble(list(chosen)) for chosen in itertools.product(*fixed)]


def _refused_keys(plan: Plan, axes: Axes) -> set[str]:
    """Returns the keys that do not exist with one of the choices of groups."""
    composed = {key: values for key, values in axes.items() if is_composed(values[0])}
    refused: set[str] = set()
    for options in itertools.product(*composed.values()):
        config = _keys(base(tuple(option.input_line for option in options)))
        plan.problems += _sweep_conflicts(config, axes)
        for key in [key for key in axes if key not in composed and key not in refused]:
            found = [line for value in axes[key] if (line := key_problem(value, config))]
            if found and not plan.unclear & {key.lstrip("+~").split(".")[0], "experiment"}:
                plan.problems += found
            if found:
                refused.add(key)
            elif is_new(key, config):
                plan.new.add(key)
    return refused


def _hydra(overrides: list[Override]) -> DictConfig:
    """Composes Hydra's own node."""
    config = copy.deepcopy(base(tuple(o.input_line for o in overrides if is_composed(o))))
    for override in overrides:
        own = override.is_hydra_override() and not is_composed(override)
        if own and not key_problem(override, _keys(config)):
            put(config, override)
    return config.hydra


def _experiment_sweep(hydra: DictConfig, folders: list[Path]) -> Axes:
    """Returns the sweep that an experiment defines.

    Raises:
        Problems: the mistakes in it.
    """
    params = OmegaConf.to_container(hydra.sweeper.get("params") or OmegaConf.create({}))
    overrides, problems = parse([f"{key}={value}" for key, value in params.items()])
    result = Plan(problems)
    axes = _accepted(result, overrides, folders)
    if result.problems:
        raise Problems([f"hydra.sweeper.params: {line}" for line in result.problems])
    return axes


def _sweep_conflicts(composed: dict[str, Any], axes: Axes) -> list[str]:
    """Returns the error if one of several experiments defines a sweep of its own."""
    if len(axes.get("experiment", [])) > 1 and composed.get("hydra.sweeper.params"):
        name = composed["hydra.runtime.choices"]["experiment"]
        return [f"experiment: {name} defines a sweep; run it alone"]
    return []


def _keys(config: DictConfig) -> dict[str, Any]:
    """Maps dotted keys to values; interpolations stay unresolved."""
    return flat(OmegaConf.to_container(config, resolve=False))
