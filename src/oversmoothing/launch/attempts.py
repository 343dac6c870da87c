"""Runs many configs: any of them may fail, be done already, or be held by another process."""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from oversmoothing.errors import InputError, one_line_warnings
from oversmoothing.store.summary import summary

if TYPE_CHECKING:
    from oversmoothing.launch.start import Start

BUSY = "left for later"


def run_all(
    configs: Sequence[DictConfig], jobs: int = 1, start: "Start | None" = None
) -> list[str]:
    """Runs what has no result yet. A failure is reported and does not stop the other runs.

    Runs that another process holds are skipped at first and waited for at the end.

    Args:
        configs: composed and checked.
        jobs: number of processes that run side by side.
        start: what the check of a single config has built.

    Returns:
        One line for each failed run.
    """
    if jobs > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=one_line_warnings) as pool:
            outcomes = list(pool.map(attempt, configs))
    else:
        outcomes = [attempt(config, start=start) for config in configs]
    busy = [config for config, said in zip(configs, outcomes) if said == BUSY]
    outcomes += [attempt(config, wait=True, start=start) for config in busy]
    return [said for said in outcomes if said not in (None, BUSY)]


def attempt(config: DictConfig, wait: bool = False, start: "Start | None" = None) -> str | None:
    """Runs one config and prints its summary, or the error.

    Args:
        wait, start: as for ``execute``.

    Returns:
        None after a success, else the error in one line, or ``BUSY`` where another process holds
        the run and ``wait`` is off.
    """
    from oversmoothing.launch.execute import execute, finished, run_folder  # torch takes a second
    from oversmoothing.store.claims import Busy

    name, already = run_folder(config).name, finished(config)
    try:
        print(summary(execute(config, wait, start), already), flush=True)
        return None
    except Busy as other:
        print(f"{other}: {BUSY}", flush=True)
        return BUSY
    except InputError as error:  # printed by every process: it may concern a file only it reads
        problem = f"{name}: {error}"
    except Exception as error:
        traceback.print_exc()
        problem = f"{name}: {type(error).__name__}, see above"
    print(f"error: {problem}", file=sys.stderr, flush=True)
    return problem


def complain(*lines: str) -> None:
    """Prints error lines. Under torchrun only the first process prints; all find the same ones."""
    if os.environ.get("RANK", "0") == "0":
        print(*(f"error: {line}" for line in lines), sep="\n", file=sys.stderr)


def unfinished(configs: Sequence[DictConfig]) -> int:
    """Counts the runs that have no result, and prints the count if there are any."""
    from oversmoothing.launch.execute import finished

    missing = sum(not finished(config) for config in configs)
    if missing:
        complain(f"{missing} of {len(configs)} runs have no result")
    return missing
