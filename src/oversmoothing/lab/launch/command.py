"""From a command line to its runs: checks it whole, then runs what has no result.

All mistakes of a command are reported together, one line each, before any run: first those in
flags, groups, keys and sweeps, and in names and types; if there are none, those that building the
parts shows. Hydra gets the command only to show something, or for its launchers and sweepers.
"""

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import CompactHydraException
from omegaconf import DictConfig

from oversmoothing.errors import InputError, Problems, closest, complain, lack
from oversmoothing.lab.launch.check import all_problems, config_problems
from oversmoothing.lab.launch.config import (
    CONFIGS,
    SEARCH_PATH,
    Plan,
    compose_config,
    parse,
    plan,
    search_path,
)
from oversmoothing.lab.launch.execute import finished, obtain, run_folder
from oversmoothing.lab.launch.script import as_override
from oversmoothing.lab.processes import (
    DIED,
    end_if_one_of_several,
    follow_parent,
    in_processes,
)
from oversmoothing.lab.store.environment import named_device
from oversmoothing.lab.store.files import OUTPUTS, require_writable
from oversmoothing.lab.store.identity import may_decide
from oversmoothing.lab.store.results import mean, setting, summary
from oversmoothing.lab.store.run import Busy

SWITCHES = (
    *("--help -h", "--hydra-help", "--resolve", "--run -r"),
    *("--multirun -m", "--shell-completion -sc"),
)
WITH_VALUE = ("--package -p", "--config-dir -cd")
SHOWN = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
BUSY = "left for later"


@dataclass(frozen=True)
class Command:
    """A command line without mistakes.

    Args:
        configs: one for each run; empty if Hydra's sweeper chooses the runs.
        hydra: the arguments for Hydra, flags first; None unless Hydra has to show something or to
            start runs by a launcher or sweeper other than its basic ones.
        swept: for each config, the overrides that differ between the runs.
    """

    configs: list[DictConfig] = field(default_factory=list)
    hydra: list[str] | None = None
    swept: list[str] = field(default_factory=list)


def command(argv: list[str]) -> Command:
    """Checks a command line.

    Raises:
        Problems: every mistake found.
    """
    given = _flags(argv)
    for_hydra = [word for word in argv if word not in given.overrides] + given.overrides
    if given.shell_completion or given.hydra_help:
        _stop_at(given.problems)
        return Command(hydra=for_hydra)
    planned = plan(given.overrides + as_override(given.config_dir), given.multirun)
    planned.problems[:0] = given.problems
    for_hydra = [f"+{word}" if word.split("=")[0] in planned.new else word for word in for_hydra]
    if given.help or given.cfg or given.info:
        _stop_at(planned.problems)
        return Command(hydra=for_hydra)
    _check(planned)
    known = planned.configs if planned.sweeper == "basic" else []
    return Command(known, for_hydra if planned.by_hydra else None, planned.swept)


def configs(words: list[str], multirun: bool = False) -> list[DictConfig]:
    """Composes and checks every combination of a list of overrides.

    Args:
        words: overrides as on the command line, sweeps included.
        multirun: whether ``-m`` was given; experiments with a sweep imply it.

    Raises:
        Problems: every mistake found.
    """
    planned = plan(words, multirun)
    _check(planned)
    return planned.configs


def _check(planned: Plan) -> None:
    """Raises Problems with the mistakes in a plan."""
    every, known = planned.configs, dict[str, Any]()
    _stop_at(planned.problems + _sweep_problems(planned) + name_problems(every))
    problems = [line for config in every for line in all_problems(config, known)]
    _stop_at(problems or _output_problems(every))


def name_problems(composed: list[DictConfig]) -> list[str]:
    """Lists wrong names and types in composed configs."""
    found = [config_problems(config) for config in composed]
    return [line for parts in found for lines in parts.values() for line in lines]


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
        problems.append("optimize: only a sweeper of Hydra that chooses the runs reads it")
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
        try:
            require_writable(folder, OUTPUTS)
        except InputError as error:
            problems.append(f"{OUTPUTS}: {error}")
    return problems


def _stop_at(problems: list[str]) -> None:
    if problems:
        raise Problems(problems)


# Flags, for which Hydra has no public function


def _flags(argv: list[str]) -> argparse.Namespace:
    """Reads Hydra's flags, wherever they stand among the overrides.

    Returns:
        Flag -> value, ``overrides``, and ``problems``, one line each.

    Raises:
        Problems: a value that is missing or unknown.
    """

    def refuse(message: str) -> None:
        raise Problems([f"{message}; python train.py --hydra-help lists the flags"])

    parser = argparse.ArgumentParser(add_help=False)
    parser.error = refuse
    parser.add_argument("overrides", nargs="*")
    for flags in SWITCHES:
        parser.add_argument(*flags.split(), action="store_true")
    for flags in WITH_VALUE:
        parser.add_argument(*flags.split())
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=SHOWN)
    given, unknown = parser.parse_known_intermixed_args(argv)
    known = [flag.split()[0] for flag in (*SWITCHES, *WITH_VALUE)] + ["--cfg", "--info"]
    given.problems = [f"{word}: no such flag; {_flag_meant(word, known)}" for word in unknown]
    given.problems += _misused(given)
    return given


def _flag_meant(word: str, known: list[str]) -> str:
    near = closest(word, {flag: flag for flag in known}, cutoff=0.75)
    return f"did you mean {near!r}?" if near else "settings are key=value, such as trainer.lr=0.1"


def _misused(given: argparse.Namespace) -> list[str]:
    """Lists flags that are not supported, or not in this combination."""
    problems = []
    modes = {name: getattr(given, name) for name in ("cfg", "info", "multirun", "run")}
    if len(chosen := [f"--{name}" for name, value in modes.items() if value]) > 1:
        problems.append(f"{' and '.join(chosen)}: only one of them at a time")
    return problems


# Runs


def run_all(configs: Sequence[DictConfig], jobs: int = 1, swept: Sequence[str] = ()) -> list[str]:
    """Runs all configs without a result; a failure is reported and does not stop the other runs.

    Runs that another process holds are tried again at the end, when they are waited for.

    Args:
        configs: composed and checked.
        jobs: number of parallel processes.
        swept: for each config, the overrides to print beside its name; none with several jobs.

    Returns:
        One line for each failed run.
    """
    pairs = [*zip(configs, swept or [""] * len(configs), strict=True)]
    if jobs > 1:
        found = [
            ((config, ""), said) for config, said in in_processes(attempt, configs, jobs, _died)
        ]
    else:
        found = [((config, of), attempt(config, swept=of)) for config, of in pairs]
    busy = [item for item, said in found if said == BUSY]
    outcomes = [said for _, said in found if said != BUSY]
    outcomes += [attempt(config, wait=True, swept=of) for config, of in busy]
    return [said for said in outcomes if said is not None]


def _died(config: DictConfig) -> str:
    """Reports a run whose process died; returns the error in one line."""
    complain(problem := f"{run_folder(config).name}: {DIED}")
    return problem


def attempt(config: DictConfig, wait: bool = False, swept: str = "") -> str | None:
    """Runs one config and prints its summary, or the error.

    Args:
        wait: as for ``obtain``.
        swept: overrides to print beside the name.

    Returns:
        None after a success; ``BUSY`` if another process holds the run and ``wait`` is false; else
        the error in one line.
    """
    try:
        result, already = obtain(config, wait)
    except Busy as other:
        print(f"{other}: {BUSY}", flush=True)
        return BUSY
    except InputError as error:  # every process prints it, since only this one may have read a file
        problem = str(error)
    except Exception as error:
        if not (lacking := lack(error)):
            traceback.print_exc()
        problem = lacking or f"{type(error).__name__}, see above"
    else:
        _show(config, result, already, swept)  # where nobody can read it, the command ends
        return None
    problem = f"{_named(config, swept)}: {problem}"
    print(f"error: {problem}", file=sys.stderr, flush=True)
    end_if_one_of_several()
    return problem


def _show(config: DictConfig, result: dict[str, Any], already: bool, swept: str) -> None:
    """Prints the numbers of a run, and below them its setting, chance level and folder."""
    print(
        summary(result, already, swept),
        setting(config, result, run_folder(config)),
        sep="\n",
        flush=True,
    )


def _named(config: DictConfig, swept: str) -> str:
    return f"{run_folder(config).name} {swept}".rstrip()


def unfinished(configs: Sequence[DictConfig]) -> int:
    """Counts the runs that have no result, and prints the count if there are any."""
    missing = 0
    for config in configs:
        try:
            missing += not finished(config)
        except InputError:  # already printed when the run was tried
            missing += 1
    if missing:
        complain(f"{missing} of {len(configs)} runs have no result")
    return missing


# Runs that Hydra starts


def run_by_hydra(words: list[str]) -> None:
    """Hands a checked command line over to Hydra; exits with 1 if a sweeper gives up."""
    if hasattr(signal, "SIGPIPE") and not {"-m", "--multirun"} & {*words}:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # else `--help | head` is an error
    sys.argv[1:] = words
    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints errors, with further lines
    try:
        _by_hydra()
    except CompactHydraException as error:
        complain(*str(error).removeprefix("error: ").splitlines())
        sys.exit(1)


@hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name="config")
def _by_hydra(config: DictConfig) -> float | None:
    """Runs one config for Hydra; returns its metric if a sweeper chooses the configs by it."""
    if multiprocessing.parent_process():  # in a worker of hydra/launcher=processes
        follow_parent()
    given = HydraConfig.get()
    chosen = " ".join(other_runs([*given.overrides.task]))
    if given.runtime.choices["hydra/sweeper"] != "basic":
        return _trial(config, chosen)
    attempt(config, wait=True, swept=chosen)
    return None


def _trial(config: DictConfig, chosen: str) -> float:
    """Checks and runs one config for a sweeper; returns the metric, averaged over the seeds.

    Raises:
        CompactHydraException: bad input, or no such metric, so that the sweeper gets no number.
            Other errors of the run are passed on.
    """
    try:
        _stop_at(name_problems([config]) or all_problems(config, {}))
        result, already = obtain(config, wait=True)
        _show(config, result, already, chosen)
        return mean(result, config.optimize, config.seeds, "optimize")
    except InputError as error:
        lines = [f"error: {_named(config, chosen)}: {line}" for line in error.lines]
        raise CompactHydraException("\n".join(lines)) from error


# Overrides of recorded runs


def other_runs(overrides: list[str]) -> list[str]:
    """Returns the overrides that may change the identity or the seeds of a run.

    Raises:
        Problems: a word is not an override.
    """
    parsed, problems = parse(overrides)
    _stop_at(problems)
    return [override.input_line for override in parsed if not _says_how(override)]


def same_runs(overrides: list[str], example: Sequence[str]) -> None:
    """Checks overrides for all runs of a table or figure, which stay the same runs.

    Args:
        example: overrides of one of the runs.

    Raises:
        InputError: they may be other runs (the message names the allowed keys), one is a sweep, or
            has a wrong value.
    """
    parsed = parse(overrides)[0]
    if absent := [path for path in search_path(parsed) if not path.is_dir()]:
        raise InputError(f"{absent[0]}: no such folder of configs; check --config-dir")
    for override in parsed:
        if override.is_sweep_override():
            raise InputError(f"{override.input_line}: expected one value; a table has no sweeps")
    if other := other_runs(overrides):
        allowed = sorted(key for key in compose_config([]) if not may_decide(key))
        raise InputError(
            f"overrides {' '.join(other)}: they may change which runs these are, or their seeds; "
            f"give only {', '.join(allowed)}, and use train.py for other runs"
        )
    made = plan([*example, *overrides], multirun=False)
    _stop_at(made.problems or name_problems(made.configs))
    named_device(made.configs[0].device)


def _says_how(override: Override) -> bool:
    key = override.key_or_group
    known = key.split(".")[0] in compose_config([])
    return key == SEARCH_PATH or (known and not may_decide(key) and override.package is None)
