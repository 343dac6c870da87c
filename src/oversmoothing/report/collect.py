"""Finds the runs that measure published cells, and their results."""

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from oversmoothing.config.compose import compose_config
from oversmoothing.config.parts import reason
from oversmoothing.config.plan import plan
from oversmoothing.errors import InputError, Problems
from oversmoothing.launch.execute import known_result
from oversmoothing.report.cells import Cell
from oversmoothing.report.records import (
    Records,
    is_new,
    json_lines,
    merged_seeds,
    read_records,
    records_beside,
)
from oversmoothing.report.verdict import Measured, Pair
from oversmoothing.store.files import write_text
from oversmoothing.store.identity import identity, ids, run_id
from oversmoothing.store.metric import look_up

EARLIER = (
    "run by an earlier version of this package, which drew other random numbers for the same "
    "seeds; `make {} EARLIER=1` measures again"
)


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
    result: dict[str, Any] | None = None
    earlier: bool = False

    @property
    def missing(self) -> bool:
        """Whether a seed has no result; False if there is nothing to run."""
        return self.config is not None and len(self._seeds(self.result)) < len(self.config.seeds)

    @property
    def measured(self) -> Measured | None:
        """The cell's metric over the seeds that the config names.

        If a seed is missing, a cell that is compared with a published number counts as not
        measured; a cell of a table of ours is averaged over the other seeds.
        """
        seeds = self._seeds(self.result)
        if not seeds or (self.missing and not self.cell.about.ours):
            return None
        run, found = self.result["id"], [self.result["seeds"][str(seed)] for seed in seeds]
        values = tuple(look_up(result, self.cell.metric, f"run {run}") for result in found)
        how = EARLIER.format(self.cell.table) if self.earlier else ""
        words = str(found[0].get("weights", "")), how or conditions(found[0], self.cell.metric)
        return Measured(values, run, self.result["seconds"], seeds, *words)

    @property
    def pair(self) -> Pair:
        return self.cell, self.measured

    def of_seeds(self, seeds: Sequence[int]) -> "Planned":
        """Restricts the cell to some of its seeds.

        Args:
            seeds: the wanted seeds; others than the cell's are ignored; empty: all.
        """
        if self.config is None or not seeds:
            return self
        wanted = [seed for seed in self.config.seeds if seed in seeds]
        word = f"seeds=[{','.join(map(str, wanted))}]"
        cell = replace(self.cell, overrides=(*self.cell.overrides, word))
        config = self.config.copy()
        config.seeds = wanted
        return replace(self, cell=cell, config=config)

    @property
    def remainder(self) -> "Planned":
        """The cell restricted to the seeds without a result of this version."""
        done = () if self.earlier else self._seeds(self.result)
        return self.of_seeds([seed for seed in self.config.seeds if seed not in done])

    def looked_up(self, records: Records | None = None) -> "Planned":
        """Looks for the results of the wanted seeds.

        For each seed, the result in the output folder comes first, then ``self.result``, then the
        recorded one. A result of an earlier version is taken only if it has more of the seeds.
        """
        if self.config is None:
            return self
        return self.with_best_result(known_result(self.config), records or {})

    def with_best_result(self, found: dict[str, Any] | None, records: Records) -> "Planned":
        """Chooses among ``found``, ``self.result`` and the recorded results, in this order.

        A result is ignored if all its seeds are recorded with the same values.
        """
        names = ids(self.config)
        fresh = [result for result in (found, self.result) if result and is_new(result, records)]
        results = [*fresh, *filter(None, map(records.get, names))]
        of_versions = [[result for result in results if result["id"] == name] for name in names]
        merged = [reduce(merged_seeds, of_version) for of_version in of_versions if of_version]
        best = max(merged, key=lambda result: len(self._seeds(result)), default=None)
        return replace(self, result=best, earlier=best is not None and best["id"] != names[0])

    def _seeds(self, result: dict[str, Any] | None) -> tuple[int, ...]:
        """Returns the seeds of the config that a result has."""
        if self.config is None or result is None:
            return ()
        return tuple(seed for seed in self.config.seeds if str(seed) in result["seeds"])


def conditions(result: dict[str, Any], metric: str) -> str:
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
        recorded: committed file with the table's results; the files next to it are read, too. None:
            use only the output folder.
    """
    records = records_beside(recorded) if recorded else {}
    runs: dict[tuple[str, ...], Planned] = {}  # a run often measures several cells
    planned = []
    for cell in cells:
        words = (f"experiment={cell.experiment}", *cell.overrides, *extra)
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


def write_records(path: Path, planned: Iterable[Planned]) -> None:
    """Writes the results of a whole table: one line for each run, sorted by name.

    Recorded results without a new result are kept. Runs that are no longer in the table are
    removed. No file is created if there are no results.
    """
    known = read_records(path)
    runs = {run_id(p.config): p for p in planned if p.config is not None}
    kept = [p.with_best_result(None, known) for p in runs.values()]
    for p in kept:
        _say_dropped(path, p.result, known)
    text = json_lines(_record(p) for p in kept if p.result)
    if text or path.exists():
        write_text(path, text)


def _say_dropped(path: Path, result: dict[str, Any] | None, known: Records) -> None:
    """Warns of recorded seeds that are dropped because the new result is on other data."""
    before = known.get(result["id"], result) if result else None
    if result and (dropped := before["seeds"].keys() - result["seeds"].keys()):
        warnings.warn(
            f"{path}: {result['name']}: seeds {', '.join(sorted(dropped, key=int))} are dropped; "
            "they were run on other data than the new ones; run them again, or restore the data",
            stacklevel=3,
        )


def _record(planned: Planned) -> dict[str, Any]:
    """Reduces the config in a result to the part that decides the numbers."""
    if planned.earlier:
        return planned.result
    kept = {key: planned.result[key] for key in ("id", "name", "seeds", "env", "seconds")}
    return {**kept, "config": identity(planned.config)}
