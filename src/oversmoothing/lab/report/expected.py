"""Reads the cells of the tables under ``results/expected``, and selects some of them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.report.cells import Cell
from oversmoothing.lab.report.schema import (
    UNSET,
    Level,
    Reading,
    Remark,
    Table,
    mapping,
    named,
    read,
)
from oversmoothing.lab.search.files import Best, read_best

NOT_PRINTED = ("–", "-", "")
UNKNOWN = "?"  # printed in the paper, but unknown here
POINTS = {"points": 1.0, "fraction": 100.0}
PRINTED = re.compile(r"(?P<value>-?\d+(\.\d+)?)( *± *(?P<std>\d+(\.\d+)?))?")
NO_REMARK = Remark(row="", column="")
Place = tuple[str, str, str]  # block, row, column


def load(path: Path, tuned: bool = True) -> list[Cell]:
    """Reads the cells of a file of tables, or of a folder of them, in the order of printing.

    Args:
        path: file or folder.
        tuned: use the settings found by searches; if false, those that the searches start from.

    Raises:
        InputError: a file has another form than described in ``results/expected/README.md``, or two
            tables have the same name. The message names file, table, block and row.
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
    return [cell for table in cells.values() for cell in table]


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
    chosen = _having(cells, "table", [table], lambda cell: (cell.table,))
    found = _having(chosen, "block", blocks, lambda cell: (cell.block,))
    found = _having(found, "row", rows, lambda cell: (cell.key, cell.row, *cell.also))
    return _having(found, "column", columns, lambda cell: (cell.column,))


def printed(text: Any, where: str) -> tuple[float, float | None, int]:
    """Parses a printed cell to value, ± (None if there is none) and number of decimals."""
    match = PRINTED.fullmatch(str(text).strip())
    if match is None:
        raise InputError(f"{where}: expected a number such as 79.96 ± 0.73 or 79.96, got {text!r}")
    std = None if match["std"] is None else float(match["std"])
    return float(match["value"]), std, len(match["value"].partition(".")[2])


def _having(
    cells: Sequence[Cell], kind: str, wanted: Sequence[str], names: Callable[[Cell], Sequence[str]]
) -> list[Cell]:
    known = {name.casefold(): name for cell in cells for name in names(cell)}
    for name in wanted:
        if name.casefold() not in known:
            hint = meant(name, known.values())
            hint += "" if hint.startswith("known") else f" known: {', '.join(known.values())}"
            raise InputError(f"there is no {kind} {name!r}; {hint}")
    keys = {name.casefold() for name in wanted}
    return [c for c in cells if not keys or keys & {name.casefold() for name in names(c)}]


def _cells(table: Table, where: str) -> Iterator[Cell]:
    """Yields the cells of a table, in the order of printing."""
    for reading in table.readings or [Reading(label="")]:
        for place, text in _places(table, reading, where):
            yield _cell(table, reading, place, text, ": ".join(filter(None, (where, *place))))


def _places(table: Table, reading: Reading, where: str) -> Iterator[tuple[Place, str | None]]:
    """Yields block, row and column of every cell of a reading, with the printed text."""
    for block in named(table.blocks, reading.blocks, f"{where}: block"):
        for row in named(table.rows, reading.rows, f"{where}: row"):
            texts = _texts(table, block, row, where)
            for column in named(table.columns, reading.columns, f"{where}: column"):
                if column in texts and texts[column] not in NOT_PRINTED:
                    yield (block, row, column), texts[column]


def _texts(table: Table, block: str, row: str, where: str) -> dict[str, str | None]:
    """Maps columns to the printed texts of a row; None if unknown, as in a table of ours."""
    if table.ours:
        return dict.fromkeys(table.rows[row].columns or table.columns)
    where = ": ".join(filter(None, (where, block)))
    lines = mapping(table.blocks[block].cells, f"{where}: cells")
    named(table.rows, lines, f"{where}: cells: row")
    if row not in lines:
        raise InputError(f"{where}: row {row!r} is missing; add its values to cells")
    values = lines[row] if isinstance(lines[row], list) else [lines[row]]
    if len(values) != len(table.columns):
        wanted = f"{len(table.columns)} columns ({', '.join(table.columns)})"
        raise InputError(f"{where}: {row}: {len(values)} values for {wanted}; give one for each")
    texts = (str(value).strip() for value in values)
    return {c: None if t == UNKNOWN else t for c, t in zip(table.columns, texts)}


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
    )


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
        lacking = f"no settings yet; `scripts/tune.py {cell.table}` finds them"
        return replace(cell, reason=lacking, experiment=None)
    return replace(cell, overrides=(*cell.overrides, *found["overrides"]))


def _nearest(levels: Sequence[Level], key: str, default: Any = None) -> Any:
    """Returns the value of a field from the first level that sets it."""
    said = (getattr(level, key) for level in levels)
    return next((value for value in said if value is not UNSET), default)
