"""The values of a sweep."""

import itertools
from collections.abc import Iterable
from pathlib import Path

from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from omegaconf import DictConfig

from oversmoothing.lab.config.compose import is_group, one_line, parse
from oversmoothing.lab.config.folders import options

MOST = 10_000  # values of one sweep; more are taken for a mistake
DIRECTIONS = ("minimize", "maximize")


def values_of(override: Override, folders: list[Path]) -> tuple[list[Override], list[str]]:
    """Returns one override for every value of a sweep, and the mistakes in the sweep."""
    line, key = override.input_line, override.get_key_element()
    if not override.is_sweep_override():
        return [override], []
    if override.is_hydra_override():
        return [], [f"{line}: Hydra's own settings cannot be swept"]
    if override.is_interval_sweep():
        return [], [
            f"{line}: an interval has infinitely many values; use range(start,stop,step), or let "
            "hydra/sweeper=optuna choose them"
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


def settings_problems(hydra: DictConfig) -> list[str]:
    """Lists settings of a launcher or sweeper that its library would refuse with a traceback."""
    sweeper, problems = hydra.sweeper, []
    if hydra.launcher.get("n_jobs") == 0:
        problems.append("hydra.launcher.n_jobs: expected 1 or more, or −1 for all cores, got 0")
    for name in ("n_trials", "n_jobs"):
        if (number := sweeper.get(name)) is not None and number < 1:
            problems.append(f"hydra.sweeper.{name}: expected 1 or more, got {number}")
    direction = sweeper.get("direction")
    if direction is not None and getattr(direction, "name", direction) not in DIRECTIONS:
        expected = " or ".join(DIRECTIONS)
        problems.append(f"hydra.sweeper.direction: expected {expected}, got {direction}")
    return problems


def not_swept(values: list[Override]) -> str:
    """Returns the error for a sweep without ``-m``; for a key it also suggests a list."""
    key = values[0].get_key_element()
    more = ",…" if len(values) > 3 else ""
    shown = ",".join(value.get_value_string() for value in values[:3]) + more
    way_out = "" if is_group(values[0]) else f", or write {key}=[{shown}] for a list"
    return f"{key}={shown} is a sweep: add -m{way_out}"
