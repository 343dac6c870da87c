"""Cells from the checked form of a table."""

import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Any

from oversmoothing.config.names import meant
from oversmoothing.errors import InputError
from oversmoothing.report.cells import Cell, Table
from oversmoothing.report.schema import Spec, mapping

NOT_PRINTED = ("–", "-", "")
UNKNOWN = "?"  # printed in the paper, but not at hand
POINTS = {"points": 1.0, "fraction": 100.0}
PRINTED = re.compile(r"(?P<value>-?\d+(\.\d+)?)( *± *(?P<std>\d+(\.\d+)?))?")


def cells_of(where: str, name: str, spec: Spec) -> Iterator[Cell]:
    """The cells of one table, in the order in which it is printed.

    Args:
        where: file and table, for errors.
        spec: from ``schema.read``.

    Raises:
        InputError: a value, a row or what a cell needs is missing or of the wrong kind.
    """
    about = _about(name, spec)
    for reading in spec["readings"] or [{}]:
        for block, row, column, text in _places(where, spec, reading):
            place = ": ".join(filter(None, (where, block, row, column)))
            levels = (reading, spec["rows"][row], spec["columns"][column], spec["blocks"][block])
            shown = ChainMap(spec["columns"][column], spec["blocks"][block])
            remark = _remark(spec["blocks"][block], row, column)
            baseline = spec["rows"][row].get("baseline", spec.get("baseline"))
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
                baseline=None if baseline == row else baseline,
                unit=shown.get("unit"),
                bold=shown.get("bold", True),
                note=" ".join(str(level["note"]) for level in (*levels, remark) if "note" in level),
                overrides=_overrides(*(levels[i] for i in (3, 1, 2)), remark, reading),
                **_value(text, ChainMap(remark, *levels, spec), place),
            )


def printed(text: Any, where: str) -> tuple[float, float | None, int]:
    """Value, ± and decimals of a cell as printed; the ± is None where there is none."""
    match = PRINTED.fullmatch(str(text).strip())
    if match is None:
        raise InputError(f"{where}: expected a number such as 79.96 ± 0.73 or 79.96, got {text!r}")
    std = None if match["std"] is None else float(match["std"])
    return float(match["value"]), std, len(match["value"].partition(".")[2])


def _about(name: str, spec: Spec) -> Table:
    texts = [str(spec[key]) for key in ("title", "source", "unit")]
    note = str(spec.get("note") or "")
    return Table(name, *texts, note, tuple(spec["columns"]), bool(spec.get("ours")))


def _value(text: str | None, shared: ChainMap[str, Any], place: str) -> dict[str, Any]:
    """What the nearest of remark, reading, row, column, block and table says, and the value.

    A cell of a table of ours has no value (``text`` is None), nor what it is compared by; nor has
    one whose value is not at hand.
    """
    needed = () if text is None else ("tolerance", "runs")
    needed += () if shared.get("not_run") else ("experiment", "metric")
    for key in needed:
        if shared.get(key) is None:
            raise InputError(f"{place}: {key!r} is missing; give it for the table, block or row")
    value, std, decimals = (None, None, 2) if text is None else printed(text, place)
    return {
        "value": value,
        "std": None if std is None else round(std * POINTS[shared.get("std_is", "points")], 9),
        "decimals": decimals,
        "reason": shared.get("not_run"),
        "tolerance": shared.get("tolerance", 0.0),
        "runs": shared.get("runs", 0),
        **{key: shared.get(key) for key in ("experiment", "metric")},
    }


def _overrides(*levels: Spec) -> tuple[str, ...]:
    """Of a cell; where two levels set the same, the last decides."""
    return tuple(word for level in levels for word in level.get("overrides", ()))


def _remark(block: Spec, row: str, column: str) -> Spec:
    """The remark on one cell, empty where there is none."""
    remarks = block.get("remarks") or ()
    return next((r for r in remarks if (r["row"], r["column"]) == (row, column)), {})


def _places(where: str, spec: Spec, reading: Spec) -> Iterator[tuple[str, str, str, str | None]]:
    """Block, row, column and printed text of every cell that a reading takes up."""
    for block in _named(spec["blocks"], reading.get("blocks"), f"{where}: block"):
        for row in _named(spec["rows"], reading.get("rows"), f"{where}: row"):
            texts = _texts(where, spec, block, row)
            for column in _named(spec["columns"], reading.get("columns"), f"{where}: column"):
                if column in texts and texts[column] not in NOT_PRINTED:
                    yield block, row, column, texts[column]


def _texts(where: str, spec: Spec, block: str, row: str) -> dict[str, str | None]:
    """Column -> printed text of a row; None where no value is known, as in a table of ours."""
    if spec.get("ours"):
        wanted, kind = spec["rows"][row]["columns"], f"{where}: {row}: column"
        return dict.fromkeys(_named(spec["columns"], wanted, kind))
    place = ": ".join(filter(None, (where, block)))
    lines = mapping(spec["blocks"][block].get("cells"), f"{place}: cells", spec["rows"])
    if row not in lines:
        raise InputError(f"{place}: row {row!r} is missing; add its values to cells")
    values = lines[row] if isinstance(lines[row], list) else [lines[row]]
    if len(values) != len(spec["columns"]):
        wanted = f"{len(spec['columns'])} columns ({', '.join(spec['columns'])})"
        raise InputError(f"{place}: {row}: {len(values)} values for {wanted}")
    texts = (str(value).strip() for value in values)
    return {c: None if t == UNKNOWN else t for c, t in zip(spec["columns"], texts)}


def _named(known: Spec, wanted: Sequence[str] | None, kind: str) -> list[str]:
    for name in wanted or ():
        if name not in known:
            raise InputError(f"{kind} {name!r} does not exist; {meant(name, [*known])}")
    return [name for name in known if not wanted or name in wanted]
