"""Finds the runs that measure published cells, and their results."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.config.parts import reason
from oversmoothing.lab.config.plan import plan
from oversmoothing.lab.launch.execute import known_result
from oversmoothing.lab.report.cells import Cell
from oversmoothing.lab.report.records import (
    Records,
    differences,
    json_lines,
    merged_seeds,
    records_beside,
)
from oversmoothing.lab.report.verdict import Measured, Pair
from oversmoothing.lab.store.files import write_text
from oversmoothing.lab.store.identity import identity, ids, run_id
from oversmoothing.lab.store.metric import look_up

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
        run, first = self.result["id"], self.result["seeds"][str(seeds[0])]
        values = tuple(self._values(self.result).values())
        how = EARLIER.format(self.cell.table) if self.earlier else ""
        words = str(first.get("weights", "")), how or conditions(first, self.cell.metric)
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

    def looked_up(self, records: Records | None = None, here_first: bool = False) -> "Planned":
        """Looks for the results of the wanted seeds in the records and in the output folder.

        A recorded seed keeps its recorded result. A result of another version is taken only if it
        has more of the seeds.

        Args:
            records: recorded results; None: use only the output folder.
            here_first: whether the results in the output folder come first.
        """
        if self.config is None:
            return self
        results = [(records or {}).get(name) for name in ids(self.config)]
        results.insert(0 if here_first else len(results), known_result(self.config))
        merged: dict[str, dict[str, Any]] = {}
        for result in filter(None, results):
            merged[result["id"]] = merged_seeds(merged.get(result["id"], result), result)
        best = max(merged.values(), key=lambda found: len(self._seeds(found)), default=None)
        earlier = best is not None and best["id"] != run_id(self.config)
        return replace(self, result=best, earlier=earlier)

    def beside(self, records: Records) -> str:
        """Returns a line about seeds in the output folder with other values than the recorded ones.

        It also has the seeds that the table does not show; it is empty if there are none.
        """
        if self.config is None or not (here := known_result(self.config)):
            return ""
        known = filter(None, map(records.get, ids(self.config)))
        recorded = next(known, {"id": "", "seeds": {}, "env": {}})
        old, new = ({s: f"{v:.4g}" for s, v in self._values(r).items()} for r in (recorded, here))
        shown = self.measured.seeds if self.measured else ()
        seeds = [s for s in new if old.get(s, new[s] if s in shown else None) != new[s]]
        if not seeds:
            return ""
        seed = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        first, second = (", ".join(of.get(s, "none") for s in seeds) for of in (old, new))
        causes = [
            differences(recorded["env"], here["env"]),
            differences(here["env"], recorded["env"]),
        ]
        return f"{self._place}: recorded {seed}: {first}{causes[0]}, here {second}{causes[1]}"

    def so_far(self) -> str:
        """Returns a line about a cell that counts as missing while seeds are; empty for others."""
        if self.config is None or self.result is None or self.measured:
            return ""
        values = self._values(self.result)
        shown = ", ".join(f"seed {seed}: {value:.4g}" for seed, value in values.items())
        found = f"{len(values)} of {len(self.config.seeds)} seeds so far; {shown}"
        return f"{self._place}: {found}" if values else ""

    @property
    def _place(self) -> str:
        cell = self.cell
        return ", ".join(filter(None, (cell.table, cell.block, cell.label, cell.column)))

    def _values(self, result: dict[str, Any]) -> dict[int, float]:
        """Returns the cell's metric by seed."""
        where = f"run {result['id']}"
        return {
            seed: look_up(result["seeds"][str(seed)], self.cell.metric, where)
            for seed in self._seeds(result)
        }

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

    Runs that are no longer in the table are removed. No file is created if there are no results.
    """
    runs = {run_id(p.config): p for p in planned if p.config is not None and p.result}
    text = json_lines(map(_record, runs.values()))
    if text or path.exists():
        write_text(path, text)


def _record(planned: Planned) -> dict[str, Any]:
    """Reduces the config in a result to the part that decides the numbers."""
    if planned.earlier:
        return planned.result
    kept = {key: planned.result[key] for key in ("id", "name", "seeds", "env", "seconds")}
    return {**kept, "config": identity(planned.config)}
