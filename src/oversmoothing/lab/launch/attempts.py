"""Runs many configs, of which some may fail, be finished, or be held by another process."""

import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydra.errors import CompactHydraException
from omegaconf import DictConfig

from oversmoothing.errors import InputError, Problems, complain, lack
from oversmoothing.lab.launch.command import part_problems, source_problems
from oversmoothing.lab.processes import DIED, end_if_one_of_several, in_processes
from oversmoothing.lab.store.results import mean, summary

if TYPE_CHECKING:
    from oversmoothing.lab.launch.start import Start

BUSY = "left for later"


def run_all(
    configs: Sequence[DictConfig],
    jobs: int = 1,
    start: "Start | None" = None,
    swept: Sequence[str] = (),
) -> list[str]:
    """Runs all configs without a result; a failure is reported and does not stop the other runs.

    Runs that another process holds are tried again at the end, when they are waited for.

    Args:
        configs: composed and checked.
        jobs: number of parallel processes.
        start: what the check of a single config has built.
        swept: for each config, the overrides to print beside its name; none with several jobs.

    Returns:
        One line for each failed run.
    """
    if jobs > 1:
        done = in_processes(attempt, configs, jobs, _died)
        found = [((config, ""), said) for config, said in done]
    else:
        swept = swept or [""] * len(configs)
        pairs = [*zip(configs, swept, strict=True)]
        found = [((config, of), attempt(config, start=start, swept=of)) for config, of in pairs]
    busy = [item for item, said in found if said == BUSY]
    outcomes = [said for _, said in found if said != BUSY]
    outcomes += [attempt(config, wait=True, start=start, swept=of) for config, of in busy]
    return [said for said in outcomes if said is not None]


def _died(config: DictConfig) -> str:
    """Reports a run whose process died; returns the error in one line."""
    from oversmoothing.lab.launch.execute import run_folder

    complain(problem := f"{run_folder(config).name}: {DIED}")
    return problem


def attempt(
    config: DictConfig, wait: bool = False, start: "Start | None" = None, swept: str = ""
) -> str | None:
    """Runs one config and prints its summary, or the error.

    Args:
        wait, start: as for ``execute``.
        swept: overrides to print beside the name.

    Returns:
        None after a success; ``BUSY`` if another process holds the run and ``wait`` is false; else
        the error in one line.
    """
    from oversmoothing.lab.launch.execute import obtain, run_folder  # torch takes a second
    from oversmoothing.lab.store.run import Busy

    name = f"{run_folder(config).name} {swept}".rstrip()
    try:
        print(summary(*obtain(config, wait, start), swept), flush=True)
        return None
    except Busy as other:
        print(f"{other}: {BUSY}", flush=True)
        return BUSY
    except InputError as error:  # every process prints it, since only this one may have read a file
        problem = f"{name}: {error}"
    except Exception as error:
        if not (lacking := lack(error)):
            traceback.print_exc()
        problem = f"{name}: {lacking or f'{type(error).__name__}, see above'}"
    print(f"error: {problem}", file=sys.stderr, flush=True)
    end_if_one_of_several()
    return problem


def trial(config: DictConfig, chosen: str = "") -> float:
    """Checks and runs one config for a sweeper that chooses the next one by a metric.

    A failed trial raises an error, so the sweeper gets no number for it.

    Args:
        config: composed.
        chosen: overrides to print beside the name.

    Returns:
        The metric that ``optimize`` names, averaged over the seeds.

    Raises:
        CompactHydraException: bad input, or no such metric; Hydra prints it without a traceback.
            Other errors of the run are passed on.
    """
    from oversmoothing.lab.launch.execute import obtain, run_folder

    name = f"{run_folder(config).name} {chosen}".rstrip()
    try:
        if problems := source_problems([config]) or part_problems([config]):
            raise Problems(problems)
        result, already = obtain(config, wait=True)
        print(summary(result, already, chosen), flush=True)
        return mean(result, config.optimize, config.seeds, "optimize")
    except InputError as error:
        lines = [f"error: {name}: {line}" for line in error.lines]
        raise CompactHydraException("\n".join(lines)) from error


def unfinished(configs: Sequence[DictConfig]) -> int:
    """Counts the runs that have no result, and prints the count if there are any."""
    from oversmoothing.lab.launch.execute import finished

    missing = 0
    for config in configs:
        try:
            missing += not finished(config)
        except InputError:  # already printed when the run was tried
            missing += 1
    if missing:
        complain(f"{missing} of {len(configs)} runs have no result")
    return missing
