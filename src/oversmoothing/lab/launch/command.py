"""Checks a whole command line before any work, and reports all mistakes together, one line each.

Hydra stops at the first mistake and shows a traceback. Here all flags and overrides are checked
first, then every combination of a sweep, and the names and types of the arguments of all parts.
This needs no torch, whose import takes most of the time of a refused command. If there is no
mistake, the parts are built, which finds values out of range and parts that do not fit.
"""

import gc
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from oversmoothing.errors import Problems
from oversmoothing.lab.config.parts import config_problems
from oversmoothing.lab.config.plan import Plan, plan
from oversmoothing.lab.launch.flags import read

if TYPE_CHECKING:
    from oversmoothing.lab.launch.start import Start


@dataclass(frozen=True)
class Command:
    """A command line without mistakes.

    Args:
        configs: one for each run; empty if Hydra's sweeper chooses the runs.
        hydra: the arguments for Hydra, flags first; None unless Hydra has to show something or to
            start runs by a launcher or sweeper other than its basic ones.
        start: the start of a single run, built by the check.
        swept: for each config, the overrides that differ between the runs.
    """

    configs: list[DictConfig] = field(default_factory=list)
    hydra: list[str] | None = None
    start: "Start | None" = None
    swept: list[str] = field(default_factory=list)


def command(argv: list[str]) -> Command:
    """Checks a command line.

    Raises:
        Problems: every mistake found.
    """
    given = read(argv)
    for_hydra = [word for word in argv if word not in given.overrides] + given.overrides
    if given.shell_completion or given.hydra_help:
        _stop_at(given.problems)
        return Command(hydra=for_hydra)
    planned = plan(given.overrides + given.search_path, given.multirun)
    planned.problems[:0] = given.problems
    for_hydra = [f"+{word}" if word.split("=")[0] in planned.new else word for word in for_hydra]
    if given.help or given.cfg or given.info:
        _stop_at(planned.problems)
        return Command(hydra=for_hydra)
    _stop_at(planned.problems + _sweep_problems(planned) + source_problems(planned.configs))
    start, problems = _started(planned)
    _stop_at(problems)
    _stop_at(_output_problems(planned.configs))
    known = planned.configs if planned.sweeper == "basic" else []
    return Command(known, for_hydra if planned.by_hydra else None, start, planned.swept)


def configs(words: list[str], multirun: bool = False) -> list[DictConfig]:
    """Composes and checks every combination of a list of overrides.

    Args:
        words: overrides as on the command line, sweeps included.
        multirun: whether ``-m`` was given; experiments with a sweep imply it.

    Raises:
        Problems: every mistake found.
    """
    planned = plan(words, multirun)
    _stop_at(planned.problems + _sweep_problems(planned) + source_problems(planned.configs))
    _stop_at(part_problems(planned.configs) or _output_problems(planned.configs))
    return planned.configs


def source_problems(composed: list[DictConfig]) -> list[str]:
    """Lists wrong names and types in composed configs without importing any part."""
    found = [config_problems(config, imported=False) for config in composed]
    return [line for parts in found for lines in parts.values() for line in lines]


def part_problems(composed: list[DictConfig]) -> list[str]:
    """Lists the mistakes in composed configs that are found by importing and building the parts."""
    _import_torch()
    from oversmoothing.lab.launch.preflight import all_problems

    known: dict[str, list[str]] = {}
    return [line for config in composed for line in all_problems(config, known)]


def _started(planned: Plan) -> tuple["Start | None", list[str]]:
    """Builds and checks the runs; returns the start of a single run, and the mistakes."""
    if len(planned.configs) > 1 or planned.by_hydra:
        return None, part_problems(planned.configs)
    _import_torch()
    from oversmoothing.lab.launch.preflight import started

    return started(planned.configs[0])


def _import_torch() -> None:
    """Imports torch without garbage collection, in two thirds of the time."""
    if "torch" not in sys.modules:
        gc.disable()
        import torch  # noqa: F401

        gc.freeze()  # the garbage collector ignores these objects from now on
        gc.enable()


def _sweep_problems(planned: Plan) -> list[str]:
    """Lists the mistakes in the choice of launcher, sweeper and metric."""
    problems, chosen = [], {"sweeper": planned.sweeper, "launcher": planned.launcher}
    for kind, option in chosen.items():
        if option != "basic" and int(os.environ.get("WORLD_SIZE", 1)) > 1:
            problems.append(f"hydra/{kind}={option}: cannot run under torchrun; leave torchrun out")
    if planned.launcher == "slurm" and shutil.which("srun") is None:
        problems.append(
            "hydra/launcher=slurm: this machine has no srun; start the command where SLURM runs, "
            "or take hydra/launcher=processes"
        )
    if planned.sweeper == "basic" and any(c.optimize is not None for c in planned.configs):
        problems.append("optimize: only a sweeper reads it; add -m hydra/sweeper=optuna")
    if planned.sweeper != "basic" and any(c.optimize is None for c in planned.configs):
        problems.append(
            f"optimize: hydra/sweeper={planned.sweeper} needs a metric; add optimize=… with a key "
            "of the results, such as val_accuracy"
        )
    return problems


def _output_problems(composed: list[DictConfig]) -> list[str]:
    """Lists output folders that cannot be written, one error line for each."""
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


def _stop_at(problems: list[str]) -> None:
    if problems:
        raise Problems(problems)
