"""Composes configs as Hydra does, but each choice of groups only once.

Hydra needs tens of milliseconds to compose a config and microseconds to set a key. So a sweep over
values costs one composition, however many combinations it has.
"""

import copy
import re
from functools import cache, lru_cache

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from oversmoothing.errors import Problems
from oversmoothing.lab.config.folders import CONFIGS, SEARCH_PATH

_QUOTE = (
    "cannot be read; put '…' around the word, and \"…\" around a value with spaces, emoji or "
    "one of , = # ( [ {"
)


def compose_config(words: list[str]) -> DictConfig:
    """Composes one config, without checking its parts.

    Args:
        words: overrides as on the command line, without sweeps.

    Raises:
        Problems: what Hydra refuses.
    """
    overrides, problems = parse(words)
    if problems:
        raise Problems(problems)
    return assemble(overrides)


def parse(words: list[str]) -> tuple[list[Override], list[str]]:
    """Parses overrides; returns them, and one line for every word that is not an override."""
    parsed, problems = [], []
    for word in words:
        try:
            override = _parse(word)
        except (HydraException, ValueError):  # a number of thousands of digits
            hint = _QUOTE if "=" in word else "expected key=value, without spaces"
            problems.append(f"{word!r}: {hint}")
            continue
        if override.key_or_group:
            parsed.append(override)
        else:
            problems.append(f"{word!r}: expected key=value, without spaces")
    return parsed, problems


@lru_cache(maxsize=4096)
def _parse(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


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
    except UnicodeDecodeError as error:
        line = f"{' '.join(words)}: one of these YAML files is no text ({one_line(error)})"
        raise Problems([line]) from error
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise Problems([one_line(error)]) from error


@cache
def choices() -> dict[str, str | None]:
    """Place of a group, such as ``backbone`` or ``aggregator@then`` -> its default option."""
    return dict(base(()).hydra.runtime.choices)


@cache
def _groups() -> set[str]:
    return {place.split("@")[0] for place in choices()}


def is_group(override: Override) -> bool:
    """Whether an override chooses an option of a group; if not, it sets a key."""
    name = override.key_or_group
    return override.package is not None or "/" in name or name in _groups()


def is_composed(override: Override) -> bool:
    """Whether Hydra must know an override to compose; all others set keys afterwards."""
    return override.is_delete() or override.key_or_group == SEARCH_PATH or is_group(override)


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


def assemble(overrides: list[Override]) -> DictConfig:
    """Composes a config from overrides that name one value each, without Hydra's own node.

    Raises:
        Problems: what Hydra or a key refuses.
    """
    composed = tuple(o.input_line for o in overrides if is_composed(o))
    config = copy.deepcopy(_without_hydra(composed))
    for override in overrides:
        if not (is_composed(override) or override.is_hydra_override()):
            put(config, override)
    return config


def put(config: DictConfig, override: Override) -> None:
    """Sets a key as Hydra does.

    Raises:
        Problems: the key cannot be set.
    """
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
