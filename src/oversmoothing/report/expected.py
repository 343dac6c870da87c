"""The published numbers: ``results/expected.yaml`` as cells, and a choice of them."""

from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from oversmoothing.check.names import meant
from oversmoothing.errors import InputError
from oversmoothing.report.cells import Cell, Table
from oversmoothing.report.schema import Spec, mapping, printed, read

NOT_PRINTED = ("–", "-", "")
POINTS = {"points": 1.0, "fraction": 100.0}


def load(path: Path) -> list[Cell]:
    """Every cell of a file of published numbers, in the order in which it is printed.

    Raises:
        InputError: the file has another form than its head says; names table, block and row.
    """
    return [
        cell for name, spec in read(path).items() for cell in _cells(f"{path}: {name}", name, spec)
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


def _cells(where: str, name: str, spec: Spec) -> Iterator[Cell]:
    texts = [str(spec[key]) for key in ("title", "source", "unit")]
    note, columns = str(spec.get("note") or ""), tuple(spec["columns"])
    about = Table(name, *texts, spec.get("baseline"), note, columns)
    for reading in spec["readings"] or [{}]:
        for block, row, column, text in _places(where, spec, reading):
            place = ": ".join(filter(None, (where, block, row, column)))
            levels = (reading, spec["rows"][row], spec["columns"][column], spec["blocks"][block])
            remark = _remark(spec["blocks"][block], row, column)
            yield Cell(
                about=about,
                block=block,
                row=spec["rows"][row].get("label", row),
                key=row,
                column=column,
                also=spec["rows"][row]["also"],
                reading=reading.get("label", ""),
                control=bool(reading.get("control", False)),
                corrected=remark.get("corrected"),
                note=" ".join(str(level["note"]) for level in (*levels, remark) if "note" in level),
                overrides=tuple(o for i in (3, 1, 2, 0) for o in levels[i].get("overrides", ())),
                **_value(text, ChainMap(*levels, spec), place),
            )


def _value(text: Any, shared: ChainMap[str, Any], place: str) -> dict[str, Any]:
    """What the nearest of reading, row, column, block and table says, and the printed value."""
    for key in ("experiment", "metric", "tolerance", "runs"):
        if shared.get(key) is None:
            raise InputError(f"{place}: {key!r} is missing; give it for the table, block or row")
    value, std, decimals = printed(text, place)
    return {
        "value": value,
        "std": None if std is None else round(std * POINTS[shared.get("std_is", "points")], 9),
        "decimals": decimals,
        "reason": shared.get("not_run"),
        **{key: shared[key] for key in ("experiment", "metric", "tolerance", "runs")},
    }


def _remark(block: Spec, row: str, column: str) -> Spec:
    """The remark on one cell, empty where there is none."""
    remarks = block.get("remarks") or ()
    return next((r for r in remarks if (r["row"], r["column"]) == (row, column)), {})


def _places(where: str, spec: Spec, reading: Spec) -> Iterator[tuple[str, str, str, Any]]:
    """Block, row, column and printed text of every cell that a reading takes up."""
    for block in _named(spec["blocks"], reading.get("blocks"), f"{where}: block"):
        place = ": ".join(filter(None, (where, block)))
        lines = mapping(spec["blocks"][block].get("cells"), f"{place}: cells", spec["rows"])
        for row in _named(spec["rows"], reading.get("rows"), f"{where}: row"):
            if row not in lines:
                raise InputError(f"{place}: row {row!r} is missing; add its values to cells")
            values = lines[row] if isinstance(lines[row], list) else [lines[row]]
            if len(values) != len(spec["columns"]):
                wanted = f"{len(spec['columns'])} columns ({', '.join(spec['columns'])})"
                raise InputError(f"{place}: {row}: {len(values)} values for {wanted}")
            texts = dict(zip(spec["columns"], values))
            for column in _named(spec["columns"], reading.get("columns"), f"{where}: column"):
                if str(texts[column]).strip() not in NOT_PRINTED:
                    yield block, row, column, texts[column]


def _named(known: Spec, wanted: Sequence[str] | None, kind: str) -> list[str]:
    for name in wanted or ():
        if name not in known:
            raise InputError(f"{kind} {name!r} does not exist; {meant(name, [*known])}")
    return [name for name in known if not wanted or name in wanted]
