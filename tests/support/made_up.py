"""Invented cells and measurements for the tests of the report."""

from oversmoothing.lab.report.schema import Column, Table
from oversmoothing.lab.report.tables import Cell
from oversmoothing.lab.report.verdict import Entry, Measured, judge

EMPTY = {"unit": "%", "rows": {}, "columns": {}}
TABLE = Table(
    name="one", title="Title & more", source="Paper, Table 1", note="A note on all.", **EMPTY
)
COLUMNS = {"columns": {"CAM": Column(), "cosine": Column()}}
OURS = Table(name="two", title="Our own", source="here", ours=True, **(EMPTY | COLUMNS))


def cell(
    value: float, std: float | None = None, key: str = "ours", column: str = "L=2", **more: object
) -> Cell:
    """A published cell; tolerance 1, 5 runs."""
    fields = {
        "about": TABLE,
        "block": "Cora",
        "row": f"w/ {key}",
        "experiment": "gnn",
        "overrides": ("data=cora", f"backbone.depth={column[2:]}"),
        "metric": "test_accuracy",
        "tolerance": 1.0,
        "runs": 5,
        "baseline": None if key == "base" else "base",
    }
    return Cell(value=value, std=std, key=key, column=column, **(fields | more))


def measured(*values: float, run: str = "0a1b2c") -> Measured:
    """A run with these values, one a seed."""
    return Measured(values, run, 12.5, tuple(range(len(values))))


def own(key: str, column: str, **more: object) -> Cell:
    """A cell of a table of ours, whose baseline row is ``base``."""
    blank = {"about": OURS, "block": "", "runs": 0, "tolerance": 0.0, "overrides": ()}
    return cell(None, key=key, column=column, **(blank | more))


def own_entries() -> list[Entry]:
    """Three rows × two columns, one of them not measured."""
    flat = {"bold": False, "unit": ""}
    return judge(
        [
            (own("base", "CAM"), measured(20.0, 21.0, 19.5, run="r1")),
            (own("base", "cosine", **flat), measured(0.7, 0.6, 0.65, run="r1")),
            (own("half", "CAM"), measured(21.0, 21.5, 21.5, run="r2")),
            (own("half", "cosine", **flat), measured(0.75, 0.6, 0.75, run="r2")),
            (own("full", "CAM"), None),
            (own("full", "cosine", **flat), None),
        ]
    )


def entries() -> list[Entry]:
    """Two data sets × two rows × two depths with every verdict among them."""
    odd = {"corrected": 22.37, "note": "a misprint"}
    return judge(
        [
            (cell(80.0, 0.5, "base"), measured(80.1, 79.7, 80.6, run="r1")),
            (cell(20.0, 0.0, "base", "L=16"), measured(60.0, 60.2, run="r2")),
            (cell(79.0, 3.0), measured(79.5, 79.1, 78.2, run="r3")),
            (cell(70.0, None, column="L=16"), measured(50.0, 50.5, 51.1, run="r4")),
            (cell(23.37, 0.0, "base", block="Squirrel", **odd), measured(22.37, 22.37, run="r5")),
            (cell(40.0, 1.0, block="Squirrel"), measured(30.0, run="r6")),
            (cell(35.5, 1.0, block="Squirrel", column="L=16", decimals=1), None),
            (cell(19.0, 1.0, "base", "L=16", block="Squirrel", reason="too | long"), None),
        ]
    )
