"""Lists the missing runs of a table, and estimates their time."""

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from oversmoothing.lab.report.cells import Cell
from oversmoothing.lab.report.collect import Planned, collect
from oversmoothing.lab.store.identity import run_id


def estimate(wanted: Planned, planned: Sequence[Planned]) -> float | None:
    """Estimates the seconds that a run takes; None if no run of the table has a result.

    The time is assumed to be proportional to layers × iterations × seeds. It is scaled from the
    finished run of the closest size in the same row and block, or else in the same row, or else in
    the table.
    """
    done = [p for p in planned if p.result]
    same_row = [p for p in done if p.cell.key == wanted.cell.key]
    same_block = [p for p in same_row if p.cell.block == wanted.cell.block]
    near = same_block or same_row or done
    if not near:
        return None
    size = _size(wanted.config)
    closest = min(near, key=lambda p: abs(_size(p.config) - size))
    share = len(wanted.config.seeds) / max(1, len(closest.result["seeds"]))
    return closest.result["seconds"] * size / _size(closest.config) * share


def distinct(planned: Sequence[Planned]) -> list[Planned]:
    """Keeps one cell for each run, since cells of a row may share a run."""
    return [*{(_id(p), *p.config.seeds): p for p in reversed(planned)}.values()][::-1]


def tables_with(
    runs: Sequence[Planned], cells: Sequence[Cell], extra: Sequence[str], results: Path
) -> Iterator[list[Planned]]:
    """Yields the tables of ``cells`` that show one of the runs.

    Args:
        runs: runs of another table.
        cells: cells of any tables.
        extra: see ``collect``.
        results: folder of the records.
    """
    ids, experiments = {_id(p) for p in runs}, {p.cell.experiment for p in runs}
    for table in dict.fromkeys(c.table for c in cells if c.experiment in experiments):
        own = [cell for cell in cells if cell.table == table]
        planned = collect(own, extra, results / f"{table}.jsonl")
        if any(p.config is not None and _id(p) in ids for p in planned):
            yield planned


def describe(
    missing: Sequence[Planned], planned: Sequence[Planned], extra: Sequence[str] = ()
) -> str:
    """Describes each missing run and its estimate in one line, and the sum of the estimates.

    Args:
        missing: the missing runs.
        planned: all cells of the table.
        extra: overrides of every run.
    """
    missing = distinct(missing)
    if not missing:
        open_ = [p.cell for p in planned if p.cell.about.tuned and not p.cell.runnable]
        how = f"; cells without settings: {len(open_)}, run python scripts/tune.py "
        return "nothing is missing" + (how + open_[0].table if open_ else "")
    times = [estimate(p, planned) for p in missing]
    commands = [" ".join([p.cell.command, *map(shlex.quote, extra)]) for p in missing]
    lines = [f"{_time(seconds):>9}  {command}" for seconds, command in zip(times, commands)]
    known = [seconds for seconds in times if seconds is not None]
    total = f"{_time(sum(known))} for {len(known)} of them" if known else "no run to estimate from"
    return "\n".join([*lines, f"{len(missing)} runs are missing; {total}, one after the other"])


def _id(planned: Planned) -> str:
    return run_id(planned.config)


def _size(config: DictConfig) -> int:
    """Returns layers × iterations; missing values count as 1."""
    keys = ("backbone.depth", "trainer.iterations")
    return math.prod(OmegaConf.select(config, key) or 1 for key in keys)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
