"""Config errors, found before any work and reported together, one line each.

Hydra stops at the first mistake, with a stack of its own; here the whole command is taken apart
first: every flag and override, every combination of a sweep, every argument of every part.
"""

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hydra._internal.utils import get_args_parser  # Hydra offers its flags nowhere else
from omegaconf import DictConfig

from oversmoothing.config.compose import Problems, compose_config
from oversmoothing.config.folders import CONFIGS
from oversmoothing.config.names import meant
from oversmoothing.config.plan import Plan, plan

if TYPE_CHECKING:
    from oversmoothing.launch.start import Start

__all__ = ["CONFIGS", "Command", "Problems", "command", "compose_config", "configs"]

FLAGS = ("--multirun", "--config-dir", "--cfg", "--help", "--info", "--resolve", "--hydra-help")


@dataclass(frozen=True)
class Command:
    """A command line that has passed.

    Args:
        configs: one a run.
        hydra: the words in Hydra's order, where it is Hydra's turn: to show something, or to start
            runs by another launcher than its basic one.
        start: what a single run starts from, built by the check.
    """

    configs: list[DictConfig] = field(default_factory=list)
    hydra: list[str] | None = None
    start: "Start | None" = None


def command(argv: list[str]) -> Command:
    """Takes a command line apart.

    Raises:
        Problems: every mistake found.
    """
    given = _flags(argv)
    words = given.overrides + _search_path(given)
    for_hydra = [word for word in argv if word not in given.overrides] + given.overrides
    if given.shell_completion or given.hydra_help:
        return Command(hydra=for_hydra)
    planned = plan(words, given.multirun)
    if given.help or given.cfg or given.info:
        _stop_at(planned.problems)
        return Command(hydra=for_hydra)
    if start := _started(planned):
        _stop_at(_output_problems(planned.configs))
    else:
        _check(planned)
    return Command(planned.configs, None if planned.launcher == "basic" else for_hydra, start)


def configs(words: list[str], multirun: bool = False) -> list[DictConfig]:
    """Composes and checks every combination of a list of overrides.

    Args:
        words: overrides as on the command line, sweeps included.
        multirun: whether ``-m`` was given; an experiment can ask for it by itself.

    Raises:
        Problems: every mistake found.
    """
    planned = plan(words, multirun)
    _check(planned)
    return planned.configs


def _check(planned: Plan) -> None:
    from oversmoothing.launch.preflight import all_problems  # torch takes a second to import

    problems, known = list(planned.problems), {}
    for config in planned.configs:
        problems += all_problems(config, planned.unclear, known)
    _stop_at(problems or _output_problems(planned.configs))


def _started(planned: Plan) -> "Start | None":
    """What a single run starts from: its check builds all that the run needs."""
    from oversmoothing.launch.preflight import started

    alone = len(planned.configs) == 1 and not planned.problems and not planned.unclear
    return started(planned.configs[0]) if alone and planned.launcher == "basic" else None


def _output_problems(composed: list[DictConfig]) -> list[str]:
    """The output folders must be writable before anything is computed for them."""
    problems = []
    for folder in dict.fromkeys(Path(config.paths.outputs) for config in composed):
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        try:
            with tempfile.TemporaryDirectory(dir=there):
                pass
        except OSError as error:
            problems.append(
                f"paths.outputs: {folder} cannot be written ({error.strerror}); "
                "choose another with paths.outputs=…"
            )
    return problems


def _flags(argv: list[str]) -> argparse.Namespace:
    """Hydra's flags, wherever they stand among the overrides."""

    def refuse(message: str) -> None:
        raise Problems([f"{message}; python train.py --hydra-help lists the flags"])

    parser = get_args_parser()
    parser.error = refuse
    given, unknown = parser.parse_known_intermixed_args(argv)
    problems = [f"{word}: no such flag; {meant(word, FLAGS)}" for word in unknown]
    for name in ("config_path", "config_name", "experimental_rerun"):
        if getattr(given, name):
            flag = "--" + name.replace("_", "-")
            problems.append(f"{flag}: not offered here; --config-dir adds a folder of configs")
    modes = {name: getattr(given, name) for name in ("cfg", "info", "multirun", "run")}
    if len(chosen := [f"--{name}" for name, value in modes.items() if value]) > 1:
        problems.append(f"{' and '.join(chosen)}: only one of them at a time")
    if (given.resolve or given.package) and not (given.cfg or given.help):
        problems.append("--resolve and --package: go with --cfg job")
    _stop_at(problems)
    return given


def _search_path(given: argparse.Namespace) -> list[str]:
    """``--config-dir`` as an override."""
    if given.config_dir is None:
        return []
    if any("hydra.searchpath" in word for word in given.overrides):
        raise Problems(["--config-dir: give all folders in hydra.searchpath, or none"])
    folder = str(Path(given.config_dir).absolute()).replace("\\", "\\\\").replace("'", "\\'")
    return [f"hydra.searchpath=['file://{folder}']"]


def _stop_at(problems: list[str]) -> None:
    if problems:
        raise Problems(problems)
