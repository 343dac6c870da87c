"""From the words of a command to composed configs: groups, keys and sweeps, with all mistakes.

Hydra parses every word and composes every choice of groups. It needs tens of milliseconds to
compose a config and microseconds to set a key, so each choice of groups is composed once, however
many values a sweep has, and keys are set afterwards. Hydra stops at the first mistake; here each
mistake becomes one line, with a suggestion, and the other words are still read.
"""

import copy
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from oversmoothing.errors import Problems, install, meant
from oversmoothing.lab.launch.keys import is_new, key_problem, keys_of, node_of
from oversmoothing.lab.store import files

CONFIGS = files.CONFIGS.resolve()
SEARCH_PATH = "hydra.searchpath"
MOST = 10_000  # runs of one sweep
MORE = {  # what a group offers beside its options
    "backbone": "; convolutions of torch-geometric: backbone=pyg backbone.conv=GATConv",
    "data": "; data sets of torch-geometric: data=pyg data.dataset=Planetoid "
    "data.options.name=PubMed",
}
Axes = dict[str, list[Override]]  # key or group -> its values; several in a sweep


@dataclass
class Plan:
    """What a command line asks for.

    Args:
        problems: one line for each mistake.
        configs: one for each combination of values, without the words that have a mistake. If a
            sweeper of Hydra chooses the values, there is one for each choice of groups.
        swept: for each config, the words that differ between the runs.
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


def plan(words: list[str], multirun: bool = False) -> Plan:
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
    made = Plan(problems, unclear={node_of(w.split("=")[0]) for w in words if w not in parsed})
    try:
        axes = _swept(made, _accepted(made, overrides, folders), multirun, folders)
        made.configs = _combined(made, axes)
    except Problems as refused:
        made.problems += refused.lines
    return made


def compose_config(words: list[str]) -> DictConfig:
    """Composes one config from overrides without sweeps, and does not check its parts.

    Raises:
        Problems: what Hydra refuses.
    """
    overrides, problems = parse(words)
    if problems:
        raise Problems(problems)
    return _assembled(overrides)


def parse(words: list[str]) -> tuple[list[Override], list[str]]:
    """Parses overrides; returns them, and one line for every word that is not an override."""
    parsed, problems = [], []
    for word in words:
        try:
            override = _parsed(word)
        except (HydraException, ValueError):  # a number of thousands of digits
            quotes = (
                "put '…' around the word, and \"…\" around a value with spaces, emoji or one of"
            )
            way_out = "write $HOME for ~" if "=~" in word else f"{quotes} , = # ( [ {{"
            override, hint = None, f"cannot be read; {way_out}"
        if override is not None and override.key_or_group:
            parsed.append(override)
        else:
            readable = override is not None or "=" not in word
            problems.append(
                f"{word!r}: {'expected key=value, without spaces' if readable else hint}"
            )
    return parsed, problems


@lru_cache(maxsize=4096)
def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


# Folders and composition


def search_path(overrides: list[Override]) -> list[Path]:
    """Returns the folders of configs: the package's own, then those in ``hydra.searchpath``."""
    given = [o.value() for o in overrides if o.key_or_group == SEARCH_PATH][:1]
    entries = given[0] if given and isinstance(given[0], list) else []
    own = [Path(str(entry).removeprefix("file://")).absolute() for entry in entries]
    return list(dict.fromkeys([CONFIGS, *own]))


def options(group: str, folders: list[Path]) -> list[str]:
    """Lists the names of a group's YAML files; a name in two folders is listed twice.

    A name that begins with ``_`` is no option: others extend such a file.
    """
    return [
        path.relative_to(folder / group).with_suffix("").as_posix()
        for folder in folders
        for path in sorted((folder / group).rglob("[!_]*.yaml"))
    ]


@cache
def loader() -> ConfigLoader:
    """Hydra's loader for the folder ``configs``."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return GlobalHydra.instance().config_loader()


@lru_cache(maxsize=256)
def base(words: tuple[str, ...]) -> DictConfig:
    """Composes a choice of groups, with Hydra's own node. The config must not be changed.

    Raises:
        Problems: what Hydra refuses.
    """
    try:
        return loader().load_configuration("config", list(words), RunMode.RUN, from_shell=False)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        line = one_line(error)
        plugin = "Could not load 'hydra/" in line  # only its package has this config
        raise Problems([f"{line} {install('sweeps')}" if plugin else line]) from error


@cache
def choices() -> dict[str, str | None]:
    """Place of a group, such as ``backbone`` or ``aggregator@then`` -> its default option."""
    return dict(base(()).hydra.runtime.choices)


@cache
def _group_names() -> set[str]:
    return {place.split("@")[0] for place in choices()}


def is_group(override: Override) -> bool:
    """Whether an override chooses an option of a group; if not, it sets a key."""
    name = override.key_or_group
    return override.package is not None or "/" in name or name in _group_names()


def _is_composed(override: Override) -> bool:
    """Whether Hydra must know an override to compose; all others set keys afterwards."""
    return override.is_delete() or override.key_or_group == SEARCH_PATH or is_group(override)


def _choice(overrides: Iterable[Override]) -> tuple[str, ...]:
    return tuple(o.input_line for o in overrides if _is_composed(o))


@lru_cache(maxsize=256)
def _without_hydra(words: tuple[str, ...]) -> DictConfig:
    config = copy.deepcopy(base(words))
    with open_dict(config):
        del config["hydra"]
    _open(config)
    return config


def _open(node: DictConfig) -> None:
    """Lets keys be added to the empty mappings in a config, such as ``options: {}``."""
    for key in node:
        child = node._get_node(key)  # node[key] would resolve an interpolation, which may be wrong
        if isinstance(child, DictConfig):
            OmegaConf.set_struct(child, False) if not child else _open(child)


def _assembled(overrides: list[Override]) -> DictConfig:
    """Composes a config from overrides that name one value each, without Hydra's own node."""
    composed = [override for override in overrides if _is_composed(override)]
    config = copy.deepcopy(_without_hydra(tuple(o.input_line for o in composed)))
    for override in overrides:
        if override not in composed and not override.is_hydra_override():
            _put(config, override)
    return config


def _put(config: DictConfig, override: Override) -> None:
    add = override.is_add() or override.is_force_add()
    try:
        OmegaConf.update(config, override.key_or_group, override.value(), force_add=add)
    except (OmegaConfBaseException, ValueError) as error:
        raise Problems([f"{override.key_or_group}: {one_line(error)}"]) from error


def one_line(error: BaseException) -> str:
    """The text of an error and of its cause, without the folders that Hydra searched."""
    texts = [str(e) for e in (error, error.__cause__) if e is not None and str(e)]
    text = " ".join(": ".join(texts).split("Config search path")[0].split())
    return re.sub(r" full_key: (\S+)( object_type=\S+)?", r" (at \1)", text)


# Groups and sweeps


def _accepted(made: Plan, overrides: list[Override], folders: list[Path]) -> Axes:
    """Returns the overrides without mistakes; a swept group has all its options as values."""
    axes: Axes = {}
    for override in overrides:
        key, values, found = override.get_key_element(), [override], []
        if override.is_delete():
            found = [f"{key}: nothing can be removed; choose another option or value instead"]
        elif is_group(override) or override.is_hydra_override():
            values, found = _values(override, folders)
        if is_group(override):
            found = found or [x for value in values if (x := _group_problem(value, folders))]
            made.unclear |= {node_of(key)} if found else set()
        made.problems += found
        if not found:
            axes[key] = values
    return axes


def _group_problem(override: Override, folders: list[Path]) -> str | None:
    """Returns the mistake in an override that chooses an option of a group; None if it is valid."""
    group, where, value = override.key_or_group, _place(override), override.value()
    known, is_hydra = options(group, folders), override.is_hydra_override()
    if is_hydra:  # plugins add options and groups
        known = sorted({*known, *loader().get_group_options(group)})
    if where not in choices() and not (is_hydra and known):
        return _no_such_place(override, where)
    if override.is_add() or override.is_force_add():
        return f"{override.get_key_element()}: it exists already; write {where}=… without the +"
    if value in known:
        twice = known.count(value) > 1
        line = f"{where}: several folders have a {value}.yaml, and the first wins; rename yours"
        return line if twice else None
    shown = value if isinstance(value, str) else override.get_value_string()
    way_out = meant(shown, known)
    if way_out.startswith("known"):
        plugins = f"; plugins bring more: {install('sweeps')}"
        way_out += plugins if is_hydra else MORE.get(where, "")
    return f"{where}: there is no {shown!r}; {way_out}"


def _no_such_place(override: Override, where: str) -> str:
    if override.package and "." in override.package:
        return f"{where}: to set a key, leave the group out: {override.package}=…"
    ours = [c for c in choices() if c.startswith("hydra/") == where.startswith("hydra/")]
    own = [place for place in ours if place.split("@")[0] == override.key_or_group]
    return f"{where}: there is no such group; {meant(where, own or ours)}"


def _values(override: Override, folders: list[Path]) -> tuple[list[Override], list[str]]:
    """Returns one override for every value of a sweep, and the mistakes in the sweep."""
    line, key = override.input_line, override.get_key_element()
    if not override.is_sweep_override():
        return [override], []
    if override.is_hydra_override():
        return [], [f"{line}: Hydra's own settings cannot be swept"]
    if override.is_interval_sweep():
        return [], [
            f"{line}: an interval has infinitely many values; use range(start,stop,step), or let a "
            "sweeper choose them"
        ]
    try:
        texts = list(itertools.islice(_texts(override, folders), MOST + 1))
    except (HydraException, ValueError) as error:
        return [], [f"{line}: {one_line(error)}"]
    if not 1 <= len(texts) <= MOST:
        return [], [f"{line}: expected 1 to {MOST} values, got {'more' if texts else 'none'}"]
    return parse([f"{key}={text}" for text in dict.fromkeys(texts)])


def _texts(override: Override, folders: list[Path]) -> Iterable[str]:
    if not isinstance(glob := override.value(), Glob):
        return override.sweep_string_iterator()
    if not is_group(override):
        raise ValueError("glob(…) stands for options of a group, and this is a key")
    return glob.filter(options(override.key_or_group, folders))


def _swept(made: Plan, axes: Axes, multirun: bool, folders: list[Path]) -> Axes:
    """Adds the sweep of an experiment, and lists the values of every swept key.

    A sweeper other than Hydra's basic one chooses the values itself; swept keys are then kept as
    given.
    """
    hydra = _hydra([values[0] for values in axes.values()])
    multirun = multirun or str(hydra.mode) == "RunMode.MULTIRUN"
    chosen = {kind: hydra.runtime.choices[f"hydra/{kind}"] for kind in ("launcher", "sweeper")}
    if multirun:
        made.launcher, made.sweeper = chosen["launcher"], chosen["sweeper"]
        axes = _experiment_sweep(hydra, folders) | axes
    else:
        idle = [f"hydra/{kind}={name}" for kind, name in chosen.items() if name != "basic"]
        made.problems += [f"{override}: has no effect on one run; add -m" for override in idle]
    if made.sweeper != "basic":
        return axes
    listed: Axes = {}
    for key, values in axes.items():
        if not is_group(values[0]):
            values, found = _values(values[0], folders)
            made.problems += found
        if len(values) > 1 and not multirun:
            made.problems.append(_not_swept(values))
        if values:
            listed[key] = values if multirun else values[:1]
    return listed


def _not_swept(values: list[Override]) -> str:
    """Returns the error for a sweep without ``-m``; for a key it also suggests a list."""
    key, more = values[0].get_key_element(), ",…" if len(values) > 3 else ""
    shown = ",".join(value.get_value_string() for value in values[:3]) + more
    way_out = "" if is_group(values[0]) else f", or write {key}=[{shown}] for a list"
    return f"{key}={shown} is a sweep: add -m{way_out}"


def _hydra(overrides: list[Override]) -> DictConfig:
    """Composes Hydra's own node."""
    config = copy.deepcopy(base(_choice(overrides)))
    for override in overrides:
        own = override.is_hydra_override() and not _is_composed(override)
        if own and not key_problem(override, keys_of(config)):
            _put(config, override)
    return config.hydra


def _experiment_sweep(hydra: DictConfig, folders: list[Path]) -> Axes:
    """Returns the sweep that an experiment defines; raises Problems for the mistakes in it."""
    params = OmegaConf.to_container(hydra.sweeper.get("params") or OmegaConf.create({}))
    overrides, problems = parse([f"{key}={value}" for key, value in params.items()])
    axes = _accepted(found := Plan(problems), overrides, folders)
    if found.problems:
        raise Problems([f"hydra.sweeper.params: {line}" for line in found.problems])
    return axes


def _combined(made: Plan, axes: Axes) -> list[DictConfig]:
    """Checks the names of all keys and composes every combination of the others' values."""
    number = math.prod(map(len, axes.values()))
    if number > MOST:
        line = f"-m: expected at most {MOST:,} combinations, got {number:,}; split the sweep into "
        raise Problems([f"{line}several commands"])
    refused = _refused_keys(made, axes)
    kept = [values for key, values in axes.items() if key not in refused]
    fixed = [values for values in kept if not values[0].is_sweep_override()]
    swept = [values for values in fixed if len(values) > 1]
    combinations = itertools.product(*swept)
    made.swept = [" ".join(one.input_line for one in chosen) for chosen in combinations]
    return [_assembled(list(chosen)) for chosen in itertools.product(*fixed)]


def _refused_keys(made: Plan, axes: Axes) -> set[str]:
    """Returns the keys that do not exist with one of the choices of groups."""
    composed = {key: values for key, values in axes.items() if _is_composed(values[0])}
    refused: set[str] = set()
    for chosen in itertools.product(*composed.values()):
        keys = keys_of(base(_choice(chosen)))
        if len(axes.get("experiment", [])) > 1 and keys.get("hydra.sweeper.params"):
            name = keys["hydra.runtime.choices"]["experiment"]
            made.problems.append(f"experiment: {name} defines a sweep; run it alone")
        for key in [key for key in axes if key not in composed and key not in refused]:
            found = [line for value in axes[key] if (line := key_problem(value, keys))]
            if found and not made.unclear & {key.lstrip("+~").split(".")[0], "experiment"}:
                made.problems += found
            if found:
                refused.add(key)
            elif is_new(key, keys):
                made.new.add(key)
    return refused


def _place(override: Override) -> str:
    return override.get_key_element().lstrip("+~")
