"""The cells of tables, which ``results/expected/README.md`` describes."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.report.schema import NO_REMARK, Level, Names, Reading, Table, read
from oversmoothing.lab.search.files import Best, read_best

NOT_PRINTED = ("–", "-", "")
UNKNOWN = "?"  # printed in the paper, but unknown here
POINTS = {"points": 1.0, "fraction": 100.0}
PRINTED = re.compile(r"(?P<value>-?\d+(\.\d+)?)( *± *(?P<std>\d+(\.\d+)?))?")
Place = tuple[str, str, str]  # block, row, column


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        block, row, column: printed names; ``key`` and ``also`` are short names of the row.
        value: the printed value; None in a table of ours, and if the value is unknown.
        std: the printed ± in the table's unit (converted if it is printed as a fraction).
        printed_std: the printed ± without conversion.
        experiment, metric: experiment to run and key of its result (``layers.cosine.-1`` indexes
            mappings and lists); a cell without one of them cannot be run.
        overrides: further overrides of ``train.py``.
        tolerance: difference that counts as agreement, in the table's unit.
        runs: number of runs behind the published mean; 0 if nothing is published.
        reason: why it is run only on request; None if it is always run.
        reading: name of the reading of the paper; empty for the plain one.
        control: whether it is a control: measured next to a published number, not compared with it.
        corrected: the correct value if the printed one is certainly a misprint.
        decimals: number of printed decimals.
        baseline: key of the row that it is compared with.
        unit: its unit if it differs from the table's.
        bold: whether the best value of its column is printed in bold.
        candidates: overrides of which validation accuracy chooses one; none in most tables.
        cost: estimated cost of a run, relative to the other cells.
    """

    about: Table = field(repr=False)
    block: str
    row: str
    key: str
    column: str
    value: float | None
    std: float | None
    experiment: str | None
    overrides: Names
    metric: str | None
    tolerance: float
    runs: int
    reason: str | None = None
    note: str = ""
    reading: str = ""
    control: bool = False
    corrected: float | None = None
    decimals: int = 2
    also: Names = ()
    baseline: str | None = None
    unit: str | None = None
    bold: bool = True
    printed_std: float | None = None
    candidates: tuple[Names, ...] = ()
    cost: float = 1.0

    @property
    def runnable(self) -> bool:
        """Whether the cell has an experiment to run."""
        return self.experiment is not None and self.metric is not None

    @property
    def words(self) -> Names:
        """The overrides of its run."""
        return (f"experiment={self.experiment}", *self.overrides)

    @property
    def command(self) -> str:
        """The command that runs it, quoted for a shell; empty if there is nothing to run.

        Of several overrides of a key, the last one counts and is shown.
        """
        last = {word.split("=", 1)[0]: word for word in self.words}
        return shlex.join(["python", "train.py", *last.values()]) if self.runnable else ""

    @property
    def table(self) -> str:
        return self.about.name

    @property
    def label(self) -> str:
        """Name of the row, followed by the reading."""
        return f"{self.row}, {self.reading}" if self.reading else self.row

    @property
    def target(self) -> float | None:
        """The value that a measurement is compared with."""
        return self.value if self.corrected is None else self.corrected


def load(path: Path, tuned: bool = True, chosen: bool = False) -> list[Cell]:
    """Reads the cells of a file of tables, or of a folder of them, in the order of printing.

    Args:
        path: file or folder.
        tuned: use the settings found by searches; if false, those that the searches start from.
        chosen: whether to return the tables whose cells have candidates, instead of the others.

    Raises:
        InputError: a file has another form than described in ``results/expected/README.md``, or two
            tables have the same name. Each line names the file, the table and the key.
    """
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: expected files of tables (*.yaml); restore it with git")
    cells: dict[str, list[Cell]] = {}
    for file in files:
        for name, table in read(file).items():
            if name in cells:
                raise InputError(f"{file}: {name}: another file has such a table; rename one")
            cells[name] = [*_cells(table, f"{file}: {name}")]
            _require_labels(cells[name], f"{file}: {name}")
            if table.tuned and tuned:
                best = read_best(file.parent.parent / table.tuned)
                cells[name] = [_tuned(cell, best) for cell in cells[name]]
    every = [cell for table in cells.values() for cell in table]
    return [cell for cell in every if bool(cell.candidates) == chosen]


def select(
    cells: Sequence[Cell],
    table: str,
    blocks: Sequence[str] = (),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> list[Cell]:
    """Selects cells of a table by block, row and column; without names, all are selected.

    A row can be named by its key, its label or another of its names. Case does not matter.

    Raises:
        InputError: the table does not have a name; the message lists the names that it has.
    """
    chosen = having(cells, "table", [table], lambda cell: (cell.table,))
    found = having(chosen, "block", blocks, lambda cell: (cell.block,))
    found = having(found, "row", rows, lambda cell: (cell.key, cell.row, *cell.also))
    return having(found, "column", columns, lambda cell: (cell.column,))


def having(
    cells: Sequence[Cell], kind: str, wanted: Sequence[str], names: Callable[[Cell], Sequence[str]]
) -> list[Cell]:
    """Selects the cells that have one of the wanted names; all of them if none is wanted."""
    known = {name.casefold(): name for cell in cells for name in names(cell)}
    for name in wanted:
        if name.casefold() not in known:
            raise InputError(f"there is no {kind} {name!r}; {meant(name, known.values())}")
    keys = {name.casefold() for name in wanted}
    return [c for c in cells if not keys or keys & {name.casefold() for name in names(c)}]


def printed(text: str, where: str) -> tuple[float, float | None, int]:
    """Parses a printed cell to value, ± (None if there is none) and number of decimals."""
    match = PRINTED.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: expected a number such as 79.96 ± 0.73 or 79.96, got {text!r}")
    std = None if match["std"] is None else float(match["std"])
    return float(match["value"]), std, len(match["value"].partition(".")[2])


def _cells(table: Table, where: str) -> Iterator[Cell]:
    """Yields the cells of a table, in the order of printing."""
    for reading in table.readings or [Reading(label="")]:
        for place, text in _places(table, reading, where):
            yield _cell(table, reading, place, text, ": ".join(filter(None, (where, *place))))


def _places(table: Table, reading: Reading, where: str) -> Iterator[tuple[Place, str | None]]:
    """Yields block, row and column of every cell of a reading, with the printed text."""
    for block in (name for name in table.blocks if name in (reading.blocks or table.blocks)):
        for row in (key for key in table.rows if key in (reading.rows or table.rows)):
            texts = _texts(table, block, row, where)
            for column in table.columns:
                wanted = column in texts and column in (reading.columns or table.columns)
                if wanted and texts[column] not in NOT_PRINTED:
                    yield (block, row, column), texts[column]


def _texts(table: Table, block: str, row: str, where: str) -> dict[str, str | None]:
    """Maps columns to the printed texts of a row; None if unknown, as in a table of ours."""
    if table.ours:
        named = [table.rows[row].columns or table.columns]
        named.append(table.blocks[block].columns or table.columns)
        return {column: None for column in table.columns if all(column in of for of in named)}
    where = ": ".join(filter(None, (where, block)))
    lines = table.blocks[block].cells or {}
    if row not in lines:
        raise InputError(f"{where}: row {row!r} is missing; add its values to cells")
    if len(lines[row]) != len(table.columns):
        wanted = f"{len(table.columns)} columns ({', '.join(table.columns)})"
        raise InputError(
            f"{where}: {row}: {len(lines[row])} values for {wanted}; give one for each"
        )
    return {c: None if t == UNKNOWN else t for c, t in zip(table.columns, lines[row])}


def _cell(table: Table, reading: Reading, place: Place, text: str | None, where: str) -> Cell:
    """Builds a cell; the most specific level that sets a field decides.

    Notes on rows, columns and blocks describe the plain runs and are not those of a reading.
    """
    block, row, column = table.blocks[place[0]], table.rows[place[1]], table.columns[place[2]]
    remark = next((r for r in block.remarks if (r.row, r.column) == place[1:]), NO_REMARK)
    said = partial(_nearest, (remark, reading, row, column, block, table))
    levels = (table, block, row, column, remark, reading)
    noted = (reading,) if reading.label else (row, column, block)
    _require(said, text, where)
    value, std, decimals = (None, None, 2) if text is None else printed(text, where)
    baseline = _nearest((row, table), "baseline")
    return Cell(
        about=table,
        block=place[0],
        row=row.label or place[1],
        key=place[1],
        also=row.also,
        column=place[2],
        reading=reading.label,
        control=reading.control,
        value=value,
        std=None if std is None else round(std * POINTS[said("std_is", "points")], 9),
        decimals=decimals,
        corrected=remark.corrected,
        experiment=said("experiment"),
        metric=said("metric"),
        overrides=tuple(word for level in levels for word in level.overrides),
        tolerance=said("tolerance", 0.0),
        runs=said("runs", 0),
        reason=said("not_run"),
        note=" ".join(level.note for level in (*noted, remark) if level.note),
        baseline=None if baseline == place[1] else baseline,
        unit=_nearest((column, block), "unit"),
        bold=_nearest((column, block), "bold", True),
        printed_std=std,
        candidates=_candidates(levels),
        cost=prod(level.cost for level in levels),
    )


def _candidates(levels: Sequence[Level]) -> tuple[Names, ...]:
    """Combines each candidate of a level with each of the others."""
    lists = [level.candidates for level in levels if level.candidates]
    return tuple(sum(parts, ()) for parts in product(*lists)) if lists else ()


def _require(said: Callable[..., Any], text: str | None, where: str) -> None:
    """Raises InputError for a cell that can neither be judged nor run."""
    needed = () if text is None else ("tolerance", "runs")
    for key in (*needed, *(() if said("not_run") else ("experiment", "metric"))):
        if said(key) is None:
            raise InputError(f"{where}: {key!r} is missing; give it for the table, block or row")


def _require_labels(cells: Sequence[Cell], where: str) -> None:
    """Raises InputError for two rows of a block with the same label."""
    owners: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first = owners.setdefault((cell.block, cell.label), cell)
        if (first.key, first.reading) != (cell.key, cell.reading):
            raise InputError(
                f"{where}: rows {first.key} and {cell.key}: both have the label {cell.label!r}; "
                "give each its own"
            )


def _tuned(cell: Cell, best: Best) -> Cell:
    """Adds the best settings found by a search to a cell; without settings it is not run."""
    found = best.get(cell.block, {}).get(cell.key, {}).get(cell.column)
    if found is None:
        lacking = f"no settings yet; `oversmoothing tune {cell.table}` finds them"
        return replace(cell, reason=lacking, experiment=None)
    return replace(cell, overrides=(*cell.overrides, *found["overrides"]))


def _nearest(levels: Sequence[Level], key: str, default: Any = None) -> Any:
    """Returns the value of a field from the first level that sets it."""
    return next((getattr(of, key) for of in levels if key in of.model_fields_set), default)
