"""The tables of ``results/expected.yaml`` as cells, and a choice of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from oversmoothing.check.names import meant
from oversmoothing.errors import InputError
from oversmoothing.report.build import cells_of
from oversmoothing.report.cells import Cell
from oversmoothing.report.schema import read


def load(path: Path) -> list[Cell]:
    """Every cell of a file of tables, in the order in which it is printed.

    Raises:
        InputError: the file has another form than its head says; names table, block and row.
    """
    return [
        cell
        for name, spec in read(path).items()
        for cell in cells_of(f"{path}: {name}", name, spec)
    ]


def select(
    cells: Sequence[Cell],
    table: str,
    blocks: Sequence[str] = (),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> list[Cell]:
    """The cells of a table in the named blocks, rows and columns; all where none is named.

    A row goes by its key, its label or another name of it; upper and lower case are one.

    Raises:
        InputError: a name that the table does not have, with what was probably meant.
    """
    chosen = _having(cells, "table", [table], lambda cell: (cell.table,))
    found = _having(chosen, "block", blocks, lambda cell: (cell.block,))
    found = _having(found, "row", rows, lambda cell: (cell.key, cell.row, *cell.also))
    return _having(found, "column", columns, lambda cell: (cell.column,))


def _having(
    cells: Sequence[Cell], kind: str, wanted: Sequence[str], names: Callable[[Cell], Sequence[str]]
) -> list[Cell]:
    known = {name.casefold(): name for cell in cells for name in names(cell)}
    for name in wanted:
        if name.casefold() not in known:
            raise InputError(f"there is no {kind} {name!r}; {meant(name, [*known.values()])}")
    keys = {name.casefold() for name in wanted}
    return [c for c in cells if not keys or keys & {name.casefold() for name in names(c)}]
