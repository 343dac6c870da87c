"""Reads and writes ``results/cures.csv``, which has one line for each seed of each run."""

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.papers.cures.study import Cell, Study


class Record(NamedTuple):
    """One seed of one candidate of a cell; accuracies in percent at the best epoch."""

    graph: str
    network: str
    layers: int
    method: str
    candidate: str
    seed: int
    val_accuracy: float
    test_accuracy: float
    epoch: int
    run: str

    @property
    def cell(self) -> Cell:
        return Cell(self.graph, self.network, self.layers, self.method)


Runs = Mapping[str, list[Record]]  # candidate -> its seeds


class Measured(NamedTuple):
    """The measurement of a cell with the candidate that was chosen on validation nodes.

    Args:
        test: test accuracy by seed, in percent.
        val: mean validation accuracy of the chosen candidate over the tuning seeds.
    """

    cell: Cell
    candidate: str
    test: dict[int, float]
    val: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.test.values())

    @property
    def std(self) -> float:
        """Sample standard deviation (ddof = 1)."""
        return statistics.stdev(self.test.values())


def read(path: Path) -> list[Record]:
    """Reads the records; empty if there is no file.

    Raises:
        InputError: the file has another form.
    """
    if not path.exists():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_record(line) for line in csv.DictReader(file)]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: a line is not a record ({error}); restore it with git") from None


def write(path: Path, records: Iterable[Record]) -> Path:
    """Writes the records, sorted."""
    return write_csv(path, Record._fields, sorted(set(records)))


def by_cell(records: Iterable[Record]) -> dict[Cell, dict[str, list[Record]]]:
    """Groups records: cell -> candidate -> records."""
    found: dict[Cell, dict[str, list[Record]]] = {}
    for record in records:
        found.setdefault(record.cell, {}).setdefault(record.candidate, []).append(record)
    return found


def chosen(study: Study, cell: Cell, runs: Runs) -> str | None:
    """Returns the candidate with the highest mean validation accuracy over the tuning seeds.

    If several are equal, it is the first. It is None until all candidates have all seeds.
    """
    means = {}
    for words in study.candidates(cell):
        name = " ".join(words)
        found = {r.seed: r.val_accuracy for r in runs.get(name, ())}
        if not found.keys() >= set(study.tuning):
            return None
        means[name] = statistics.fmean(found[seed] for seed in study.tuning)
    return max(means, key=means.__getitem__)


def measured(study: Study, records: Sequence[Record]) -> dict[Cell, Measured]:
    """Returns the measurements of the cells with all seeds."""
    found = {}
    for cell, runs in by_cell(records).items():
        if (
            cell.method not in study.methods
            or cell.graph not in study.graphs
            or cell.network not in study.networks
            or (name := chosen(study, cell, runs)) is None
        ):
            continue
        test = {r.seed: r.test_accuracy for r in runs[name] if r.seed in study.seeds}
        if len(test) == len(study.seeds):
            tuned = [r.val_accuracy for r in runs[name] if r.seed in study.tuning]
            found[cell] = Measured(cell, name, test, statistics.fmean(tuned))
    return found


def _record(line: dict[str, str]) -> Record:
    kinds = Record.__annotations__
    return Record(**{name: kinds[name](line[name]) for name in Record._fields})
