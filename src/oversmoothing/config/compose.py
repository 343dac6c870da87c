"""Configs from overrides, as Hydra composes them, but every choice of groups only once.

Hydra takes tens of milliseconds to compose and microseconds to set a key, so a sweep over values
costs one composition, however many combinations it has.
"""

import copy
import re
from functools import lru_cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from oversmoothing.config.folders import CONFIGS, needed_to_compose, search_path

_QUOTE = (
    "cannot be read; put '…' around the word, and \"…\" around a value with , = ( [ { or spaces"
)


class Problems(Exception):
    """Every problem of a command.

    Args:
        lines: one line each.
    """

    def __init__(self, lines: list[str]) -> None:
        self.lines = list(dict.fromkeys(lines))
        super().__init__("\n".join(self.lines))


def compose_config(words: list[str]) -> DictConfig:
    """One config, without checks of its parts.

    Args:
        words: overrides as on the command line, without sweeps.

    Raises:
        Problems: what Hydra itself refuses.
    """
    overrides, problems = parse(words)
    if problems:
        raise Problems(problems)
    return assemble(overrides, search_path(overrides))


def parse(words: list[str]) -> tuple[list[Override], list[str]]:
    """Overrides, and one line for every word that is none."""
    parser, parsed, problems = OverridesParser.create(), [], []
    for word in words:
        try:
            override = parser.parse_override(word)
        except HydraException:
            hint = _QUOTE if "=" in word else "expected key=value, without spaces"
            problems.append(f"{word!r}: {hint}")
            continue
        if override.key_or_group:
            parsed.append(override)
        else:
            problems.append(f"{word!r}: expected key=value, without spaces")
    return parsed, problems


@lru_cache(maxsize=256)
def base(choices: tuple[str, ...]) -> DictConfig:
    """What a choice of groups composes to, Hydra's own node included; not to be written to.

    Raises:
        Problems: what Hydra refuses.
    """
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return compose("config", list(choices), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise Problems([one_line(error)]) from error


@lru_cache(maxsize=256)
def _without_hydra(choices: tuple[str, ...]) -> DictConfig:
    config = copy.deepcopy(base(choices))
    with open_dict(config):
        del config["hydra"]
    return config


def assemble(overrides: list[Override], folders: list[Path]) -> DictConfig:
    """The config of overrides that name one value each, without Hydra's node.

    Raises:
        Problems: what Hydra or a key refuses.
    """
    choices = [o for o in overrides if needed_to_compose(o, folders)]
    config = copy.deepcopy(_without_hydra(tuple(o.input_line for o in choices)))
    for override in overrides:
        if override not in choices and not override.is_hydra_override():
            put(config, override)
    return config


def put(config: DictConfig, override: Override) -> None:
    """Sets a key as Hydra does.

    Raises:
        Problems: it cannot be set.
    """
    add = override.is_add() or override.is_force_add()
    try:
        OmegaConf.update(config, override.key_or_group, override.value(), force_add=add)
    except (OmegaConfBaseException, ValueError) as error:
        raise Problems([f"{override.key_or_group}: {one_line(error)}"]) from error


def one_line(error: BaseException) -> str:
    """An error and what caused it, without the folders that Hydra searched."""
    texts = [str(e) for e in (error, error.__cause__) if e is not None and str(e)]
    text = " ".join(": ".join(texts).split("Config search path")[0].split())
    return re.sub(r" full_key: (\S+)( object_type=\S+)?", r" (at \1)", text)
