"""Reads what is recorded under ``results``: tables, runs, and measurements that are not runs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError
from oversmoothing.lab.report.verdict import Measured
from oversmoothing.lab.store.files import read_csv

Place = tuple[str, str, str]  # block, key of the row, column


class NotRecordedError(InputError):
    """A result or data that a claim needs is not there."""


class Cells(dict[Place, Measured]):
    """The measured cells of a table; asking for another one raises NotRecordedError."""

    def __init__(self, table: str, cells: dict[Place, Measured]) -> None:
        super().__init__(cells)
        self.table = table

    @property
    def seeds(self) -> str:
        """``5 seeds per cell``, by the cell with the fewest."""
        n = min(measured.n for measured in self.values())
        return f"{n} seed{'s' * (n > 1)} per cell"

    def __missing__(self, place: Place) -> Measured:
        where = ", ".join(filter(None, place))
        why = f"{self.table}: {where} is not run; `oversmoothing table {self.table} --all` runs it"
        raise NotRecordedError(why)


@dataclass(frozen=True)
class Evidence:
    """The folder of results.

    Args:
        folder: such as ``results``.

    Every reader raises NotRecordedError if its file is missing.
    """

    folder: Path

    def path(self, name: str, command: str = "") -> Path:
        """Returns a file below the folder; ``command`` makes it."""
        path = self.folder / name
        if not path.exists():
            how = f"; `{command}` makes it" if command else ""
            raise NotRecordedError(f"results/{name} is not there{how}")
        return path

    def column(self, table: str, name: str, reading: str = "") -> dict[Place, str]:
        """Returns the column ``name`` of a table's CSV file by cell."""
        return {
            (line["block"], line["key"], line["column"]): line[name]
            for line in self._lines(table)
            if line["reading"] == reading
        }

    def published(self, table: str) -> dict[Place, float]:
        """Returns the printed values of a table, misprints corrected."""
        texts, corrected = (self.column(table, name) for name in ("published", "corrected"))
        texts = {place: corrected[place] or text for place, text in texts.items()}
        return {place: float(text) for place, text in texts.items() if text}

    def measured(self, table: str, reading: str = "") -> Cells:
        """Returns the measured values of a table, of the plain runs or those of a reading.

        Raises:
            NotRecordedError: no cell is measured, or, later, one that is asked for.
        """
        found = dict(self.cells(table, reading))
        if not found:
            named = f"{table} ({reading})" if reading else table
            raise NotRecordedError(
                f"no cell of {named} is run; `oversmoothing table {table} --all --publish` runs it"
            )
        return Cells(table, found)

    def cells(self, table: str, reading: str = "") -> Iterator[tuple[Place, Measured]]:
        """Yields the measured cells, if any."""
        seeds, run = (self.column(table, name, reading) for name in ("seeds", "run"))
        for place, text in self.column(table, "values", reading).items():
            if text:
                values, of = tuple(map(float, text.split())), tuple(map(int, seeds[place].split()))
                yield place, Measured(values, run[place], 0.0, of)

    def readings(self, table: str) -> list[str]:
        """Returns the readings of a table, in its order."""
        return list(dict.fromkeys(line["reading"] for line in self._lines(table)))

    def labels(self, table: str) -> dict[str, str]:
        """Returns the name of each row of a table as it is shown, by its key."""
        return {line["key"]: line["row"] for line in self._lines(table)}

    def runs(self, name: str) -> list[dict[str, Any]]:
        """Returns the recorded runs of a table."""
        path = self.path(f"{name}.jsonl", f"oversmoothing table {name} --publish")
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    def json(self, name: str) -> Any:
        return json.loads(self.path(f"{name}.json").read_text("utf-8"))

    def csv(self, name: str, command: str = "") -> list[dict[str, str]]:
        return read_csv(self.path(name, command))

    def _lines(self, table: str) -> list[dict[str, str]]:
        if table not in self._tables:
            path = f"tables/{table}.csv"
            self._tables[table] = self.csv(path, f"oversmoothing table {table} --publish")
        return self._tables[table]

    @cached_property
    def _tables(self) -> dict[str, list[dict[str, str]]]:
        return {}
