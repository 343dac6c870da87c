"""Results of the cells of tables: recorded ones, those of the output folder, and what is missing.

A table's records are the lines of ``results/<table>.jsonl``, one for each run.
"""

import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.launch.check import reason
from oversmoothing.lab.launch.config import compose_config, plan
from oversmoothing.lab.launch.execute import known_result
from oversmoothing.lab.report.tables import Cell
from oversmoothing.lab.report.verdict import Measured, Pair
from oversmoothing.lab.store.environment import shared_environment
from oversmoothing.lab.store.files import write_text
from oversmoothing.lab.store.identity import identity, ids, run_id
from oversmoothing.lab.store.results import look_up

EARLIER = (
    "run by an earlier version of this package, which drew other random numbers for the same "
    "seeds; `oversmoothing table {} --fresh` measures again"
)
Result = dict[str, Any]
Records = Mapping[str, Result]  # run id -> result


@dataclass(frozen=True)
class Planned:
    """A cell, the config that measures it, and the result if there is one.

    Args:
        cell: the cell.
        config: None if there is nothing to run.
        result: None if there is none.
        earlier: whether the result is of an earlier version, which drew other random numbers.
    """

    cell: Cell
    config: DictConfig | None
    result: Result | None = None
    earlier: bool = False

    @property
    def missing(self) -> bool:
        """Whether a seed has no result; False if there is nothing to run."""
        return self.config is not None and len(self._seeds(self.result)) < len(self.config.seeds)

    @property
    def measured(self) -> Measured | None:
        """The cell's metric over the seeds that the config names; None without any.

        If a seed is missing, a cell that is compared with a published number counts as not
        measured; a cell of a table of ours is averaged over the other seeds.
        """
        seeds = self._seeds(self.result)
        if not seeds or (self.missing and not self.cell.about.ours):
            return None
        run, first = self.result["id"], self.finished[0]
        values = tuple(look_up(own, self.cell.metric, f"run {run}") for own in self.finished)
        how = EARLIER.format(self.cell.table) if self.earlier else ""
        words = str(first.get("weights", "")), how or conditions(first, self.cell.metric)
        return Measured(values, run, self.result["seconds"], seeds, *words)

    @property
    def pair(self) -> Pair:
        return self.cell, self.measured

    @property
    def finished(self) -> list[Result]:
        """The results of the seeds that the config names and that are there, in its order."""
        return [self.result["seeds"][str(seed)] for seed in self._seeds(self.result)]

    @property
    def remainder(self) -> "Planned":
        """The cell restricted to the seeds without a result."""
        done = self._seeds(self.result)
        wanted = [seed for seed in self.config.seeds if seed not in done]
        word = f"seeds=[{','.join(map(str, wanted))}]"
        cell = replace(self.cell, overrides=(*self.cell.overrides, word))
        config = self.config.copy()
        config.seeds = wanted
        return replace(self, cell=cell, config=config)

    def looked_up(self, records: Records | None = None) -> "Planned":
        """Looks for the results of the wanted seeds in the records and in the output folder.

        A recorded seed keeps its recorded result. A result of another version is taken only if it
        has more of the seeds.

        Args:
            records: recorded results; None: use only the output folder.
        """
        if self.config is None:
            return self
        results = [(records or {}).get(name) for name in ids(self.config)]
        merged: dict[str, Result] = {}
        for result in filter(None, [*results, known_result(self.config)]):
            merged[result["id"]] = merged_seeds(merged.get(result["id"], result), result)
        best = max(merged.values(), key=lambda found: len(self._seeds(found)), default=None)
        earlier = best is not None and best["id"] != run_id(self.config)
        return replace(self, result=best, earlier=earlier)

    def _seeds(self, result: Result | None) -> tuple[int, ...]:
        """Returns the seeds of the config that a result has."""
        if self.config is None or result is None:
            return ()
        return tuple(seed for seed in self.config.seeds if str(seed) in result["seeds"])


def conditions(result: Result, metric: str) -> str:
    """Returns how a metric ``<split>_<stage>_miou`` or ``layers_…`` was measured.

    It is empty if the result does not say. ``_best_`` metrics have their own background threshold.
    """
    split, _, stage = metric.partition("_")
    name = re.sub(r"(_best)?(_common)?_(miou|iou\..*)$", "", stage)
    said = result.get("conditions", {}).get(split, {})
    text = said if isinstance(said, str) else str(said.get(name, ""))
    best = "_best_" in stage
    return re.sub(r"background ≤ [\d.]+", "best background threshold", text) if best else text


def collect(cells: Sequence[Cell], extra: Sequence[str], recorded: Path | None) -> list[Planned]:
    """Composes every cell and looks for its result in the output folder and in the records.

    Args:
        cells: in the order of the table.
        extra: further overrides for all of them (device=cpu, logger=none).
        recorded: committed file with the table's results; the files next to it are also read. None:
            use only the output folder.
    """
    records = records_beside(recorded) if recorded else {}
    runs: dict[tuple[str, ...], Planned] = {}  # a run often measures several cells
    planned = []
    for cell in cells:
        words = (*cell.words, *extra)
        if cell.runnable and words not in runs:
            runs[words] = _planned(cell, [*words], records)
        planned.append(replace(runs[words], cell=cell) if cell.runnable else Planned(cell, None))
    return planned


def _planned(cell: Cell, words: list[str], records: Records) -> Planned:
    """Composes the config of a cell and looks for its result.

    Raises:
        Problems: the overrides have mistakes, or a class in them cannot be imported. Each line
            names the cell.
    """
    try:
        return Planned(cell, compose_config(words)).looked_up(records)
    except InputError as error:
        lines = plan(words, multirun=False).problems or error.lines
    except ImportError as error:
        lines = [reason(error)]
    place = ", ".join(filter(None, (cell.table, cell.block, cell.key, cell.column)))
    raise Problems([f"{place}: {line}" for line in lines])


def read_records(path: Path) -> Records:
    """Reads results from a file of JSON lines; empty if there is no file.

    Raises:
        InputError: the file is damaged.
    """
    if not path.exists():
        return {}
    try:
        return _parsed(path.read_text("utf-8"))
    except ValueError as error:  # of a conflict of a merge, for example
        raise InputError(f"{path}: no JSON lines ({error}); restore the file with git") from None


@lru_cache(maxsize=256)
def _parsed(text: str) -> Records:
    """Parses the lines of a file, which the reports of many tables read. Do not change them."""
    return {line["id"]: line for line in map(json.loads, text.splitlines())}


def records_beside(path: Path) -> Records:
    """Reads the results of a table and of the tables next to it, which may share runs.

    If a seed is in several files, the record of the table itself is used.
    """
    found: dict[str, Result] = {}
    for file in (path, *sorted(path.parent.glob("*.jsonl"))):
        for name, record in read_records(file).items():
            found[name] = merged_seeds(found.get(name, record), record)
    return found


def merged_seeds(result: Result, other: Result) -> Result:
    """Adds seeds of another result of the same run, and their share of its time.

    If the checksums of the data differ, no seeds are added.
    """
    added = {seed: own for seed, own in other["seeds"].items() if seed not in result["seeds"]}
    checksums = {part for of in (result, other) for part in str(of["env"].get("data")).split(" / ")}
    if not added or len(checksums - {"None"}) > 1:
        return result
    seeds = sorted((result["seeds"] | added).items(), key=lambda item: int(item[0]))
    seconds = result["seconds"] + other["seconds"] * len(added) / len(other["seeds"])
    env = shared_environment([result["env"], other["env"]])
    return {**result, "seeds": dict(seeds), "seconds": round(seconds, 2), "env": env}


def write_records(path: Path, planned: Iterable[Planned]) -> None:
    """Writes the results of a whole table: one line for each run, sorted by name.

    Runs that are no longer in the table are removed. No file is created if there are no results.
    """
    runs = {run_id(p.config): p for p in planned if p.config is not None and p.result}
    ordered = sorted(map(_record, runs.values()), key=lambda record: (record["name"], record["id"]))
    text = "".join(json.dumps(record, sort_keys=True) + "\n" for record in ordered)
    if text or path.exists():
        write_text(path, text)


def _record(planned: Planned) -> Result:
    """Reduces the config in a result to the part that decides the numbers."""
    if planned.earlier:
        return planned.result
    kept = {key: planned.result[key] for key in ("id", "name", "seeds", "env", "seconds")}
    return {**kept, "config": identity(planned.config)}


def distinct(planned: Sequence[Planned]) -> list[Planned]:
    """Keeps one cell for each run, since cells of a row may share a run."""
    by_run = {(run_id(p.config), *p.config.seeds): p for p in reversed(planned)}
    return [*by_run.values()][::-1]


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
    changed, experiments = {run_id(p.config) for p in runs}, {p.cell.experiment for p in runs}
    for table in dict.fromkeys(c.table for c in cells if c.experiment in experiments):
        own = [cell for cell in cells if cell.table == table]
        planned = collect(own, extra, results / f"{table}.jsonl")
        if any(p.config is not None and run_id(p.config) in changed for p in planned):
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
        how = f"; cells without settings: {len(open_)}, run oversmoothing tune "
        left = sum(bool(p.missing and p.cell.reason) for p in planned)
        marked = f"; marked as not run: {left} (--all lists them)" if left else ""
        return f"nothing is missing{marked}" + (how + open_[0].table if open_ else "")
    times = [estimate(p, planned) for p in missing]
    commands = [" ".join([p.cell.command, *map(shlex.quote, extra)]) for p in missing]
    lines = [f"{_time(seconds):>9}  {command}" for seconds, command in zip(times, commands)]
    known = [seconds for seconds in times if seconds is not None]
    total = f"{_time(sum(known))} for {len(known)} of them" if known else "no run to estimate from"
    counted = "1 run is" if len(missing) == 1 else f"{len(missing)} runs are"
    return "\n".join([*lines, f"{counted} missing; {total}, one after the other"])


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


def _size(config: DictConfig) -> int:
    """Returns layers × iterations; missing values count as 1."""
    keys = ("backbone.depth", "trainer.iterations")
    return math.prod(OmegaConf.select(config, key) or 1 for key in keys)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
