"""The tables under ``results/expected`` as cells, and a choice of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from oversmoothing.config.names import meant
from oversmoothing.errors import InputError
from oversmoothing.report.build import cells_of
from oversmoothing.report.cells import Cell
from oversmoothing.report.schema import read


def load(path: Path) -> list[Cell]:
    """Every cell of a file of tables, or of a folder of them, in the order in which it is printed.

    Raises:
        InputError: a file has another form than ``results/expected/README.md`` says, or two tables
            have one name; names file, table, block and row.
    """
    files, cells = _files(path), {}
    for file in files:
        for name, spec in read(file).items():
            if name in cells:
                raise InputError(f"{file}: {name}: another file has such a table; rename one")
            cells[name] = [*cells_of(f"{file}: {name}", name, spec)]
    return [cell for table in cells.values() for cell in table]


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


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.yaml"))
    if not files:
        raise InputError(f"{path}: expected files of tables (*.yaml); restore it with git")
    return files


def _having(
    cells: Sequence[Cell], kind: str, wanted: Sequence[str], names: Callable[[Cell], Sequence[str]]
) -> list[Cell]:
    known = {name.casefold(): name for cell in cells for name in names(cell)}
    for name in wanted:
        if name.casefold() not in known:
            raise InputError(f"there is no {kind} {name!r}; {meant(name, [*known.values()])}")
    keys = {name.casefold() for name in wanted}
    return [c for c in cells if not keys or keys & {name.casefold() for name in names(c)}]
