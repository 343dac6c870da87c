"""Curves by block: means over seeds, blocks without attention maps, and missing measurements."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from oversmoothing.lab.papers import depth_curves, wsss_training
from oversmoothing.lab.papers.depth_curves import curve_rows
from oversmoothing.lab.report.results import collect
from oversmoothing.lab.report.tables import load, select

RESULTS = Path(__file__).parents[2] / "results"
TABLE = "wsss_overnight"


def planned(row: str, column: str, *seeds: dict, missing: bool = False) -> SimpleNamespace:
    """Stands for a ``Planned`` of a table by depth."""
    return SimpleNamespace(
        cell=SimpleNamespace(row=row, column=column), finished=[] if missing else [*seeds]
    )


def layers(when: str, **metrics: list) -> dict:
    return {f"layers_{when}": metrics}


def test_means_over_seeds_by_block() -> None:
    first = layers("after", cosine=[0.2, 0.4]) | layers("before", cosine=[9.0, 9.0])
    rows = curve_rows([planned("none", "L=2", first, layers("after", cosine=[0.4, 0.8]))])
    assert [(r["metric"], r["block"], r["seeds"]) for r in rows] == [
        ("cosine", 1, 2),
        ("cosine", 2, 2),
    ]
    assert [r["mean"] for r in rows] == pytest.approx([0.3, 0.6])
    assert rows[0]["std"] == pytest.approx(0.1 * 2**0.5)


def test_replaced_attention_has_no_maps_and_missing_cells_no_curve() -> None:
    found = layers("after", attention_similarity=[None, 0.5])
    rows = curve_rows([planned("a", "L=2", found), planned("b", "L=2", found, missing=True)])
    assert [(r["row"], r["block"]) for r in rows] == [("a", 2)]


def numbers(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.reader(file))


def same(name: str, rows: list[dict], folder: Path) -> bool:
    again = depth_curves.write_rows(rows, folder / "rows")
    return numbers(RESULTS / f"figures/{name}.csv") == numbers(again)


@pytest.mark.parametrize("table", depth_curves.TABLES)
def test_the_committed_curves_are_those_of_the_records(table: str, tmp_path: Path) -> None:
    """After new results: `oversmoothing figure curves`."""
    planned = depth_curves.planned(table, [f"paths.outputs={tmp_path}"])
    assert same(f"{table}_curves", curve_rows(planned), tmp_path)


def test_the_committed_trainings_are_those_of_the_records(tmp_path: Path) -> None:
    """After new results: `oversmoothing figure training`."""
    cells, elsewhere = load(RESULTS / "expected"), [f"paths.outputs={tmp_path}"]
    planned = collect(select(cells, TABLE), elsewhere, RESULTS / f"{TABLE}.jsonl")
    assert same(f"{TABLE}_training", wsss_training.curve_rows(planned), tmp_path)
    rows = wsss_training.threshold_rows(planned)
    assert same(f"{TABLE}_thresholds", rows, tmp_path)
