"""From published cells to the runs that measure them, and to their results."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from oversmoothing.config.names import meant
from oversmoothing.errors import InputError
from oversmoothing.launch.command import compose_config
from oversmoothing.launch.execute import run_folder
from oversmoothing.report.cells import Cell
from oversmoothing.report.verdict import Measured
from oversmoothing.store.files import write_text
from oversmoothing.store.identity import identity, run_id
from oversmoothing.store.migrate import json_lines
from oversmoothing.store.recorder import read_result


@dataclass(frozen=True)
class Planned:
    """A cell, the config that measures it, and the result if there is one.

    Args:
        config: None where there is nothing to run.
    """

    cell: Cell
    config: DictConfig | None
    result: dict[str, Any] | None

    @property
    def missing(self) -> bool:
        """Whether some seed of it has no result; never where there is nothing to run."""
        if self.config is None:
            return False
        seeds = self.result["seeds"] if self.result else {}
        return any(str(seed) not in seeds for seed in self.config.seeds)

    def looked_up(self) -> "Planned":
        """The same with what the output folder holds by now, if that is all that is asked for."""
        if self.config is None:
            return self
        fresh = replace(self, result=read_result(run_folder(self.config)))
        return self if fresh.missing and self.result else fresh

    @property
    def measured(self) -> Measured | None:
        """The cell's metric over the seeds that the config names.

        While one is missing: None where it would be held against a published number; in a table of
        ours over those that there are.
        """
        if self.config is None or not self.result or (self.missing and not self.cell.about.ours):
            return None
        seeds = tuple(seed for seed in self.config.seeds if str(seed) in self.result["seeds"])
        if not seeds:
            return None
        run = self.result["id"]
        found = [self.result["seeds"][str(seed)] for seed in seeds]
        values = tuple(look_up(result, self.cell.metric, f"run {run}") for result in found)
        words = str(found[0].get("weights", "")), conditions(found[0], self.cell.metric)
        return Measured(values, run, self.result["seconds"], seeds, *words)


def look_up(result: dict[str, Any], metric: str, where: str) -> float:
    """A number in a seed's result; ``layers.cosine.-1`` goes into mappings and lists.

    Returns:
        NaN where the result says null (a class that no image has).

    Raises:
        InputError: there is no such number; names ``where`` and what was probably meant.
    """
    found: Any = result
    for key in metric.split("."):
        keys = [*map(str, found)] if isinstance(found, dict) else []
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (LookupError, TypeError, ValueError):
            raise InputError(
                f"{where}: metric {metric}: {key!r} is not there; {meant(key, keys)}"
            ) from None
    if found is not None and not isinstance(found, (int, float)):
        raise InputError(f"{where}: metric {metric}: expected a number, got {type(found).__name__}")
    return math.nan if found is None else float(found)


def conditions(result: dict[str, Any], metric: str) -> str:
    """How ``<split>_<stage>_miou``, or what begins with ``layers_``, was measured.

    As the result says; empty where it does not.
    """
    split, _, stage = metric.partition("_")
    stage = re.sub(r"_(miou|iou\..*)$", "", stage)
    said = result.get("conditions", {}).get(split, {})
    return said if isinstance(said, str) else str(said.get(stage, ""))


def collect(cells: Sequence[Cell], extra: Sequence[str], recorded: Path | None) -> list[Planned]:
    """Composes every cell and looks for its result: first in the outputs, then in the records.

    Args:
        cells: in the order of the table.
        extra: further overrides for all of them (device=cpu, logger=none).
        recorded: committed JSON lines of earlier results; None to count only what the output
            folder holds.
    """
    known = read_records(recorded) if recorded else {}
    planned, compose = [], cache(lambda *words: compose_config([*words]))
    for cell in cells:
        if not cell.runnable:
            planned.append(Planned(cell, None, None))
            continue
        config = compose(f"experiment={cell.experiment}", *cell.overrides, *extra)
        fresh = Planned(cell, config, None).looked_up()
        planned.append(replace(fresh, result=known.get(run_id(config))) if fresh.missing else fresh)
    return planned


def read_records(path: Path) -> dict[str, dict[str, Any]]:
    """Run id -> result, from a file of JSON lines; empty where there is no file."""
    if not path.exists():
        return {}
    try:
        return {line["id"]: line for line in map(json.loads, path.read_text().splitlines())}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: a line is no recorded result ({error}); restore the file with git"
        ) from None


def write_records(path: Path, planned: Iterable[Planned]) -> None:
    """Writes the results of a whole table: one line a run, sorted by name.

    What was recorded before and not found now stays; runs that the table no longer names go. Where
    there is nothing to record no file is made.
    """
    known, records = read_records(path), {}
    for p in planned:
        if p.config is None:
            continue
        name = run_id(p.config)
        if p.result or name in known:
            records[name] = _record(p) if p.result else known[name]
    text = json_lines(records.values())
    if text or path.exists():
        write_text(path, text)


def _record(planned: Planned) -> dict[str, Any]:
    """A result with only the part of its config that decides the numbers."""
    kept = {key: planned.result[key] for key in ("id", "name", "seeds", "env", "seconds")}
    return {**kept, "config": identity(planned.config)}
