"""Curves by block: means over seeds, blocks without attention maps, what is not measured yet."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from oversmoothing.drawing.files import write_csv
from oversmoothing.errors import InputError
from oversmoothing.papers import depth_curves, wsss_training
from oversmoothing.papers.depth_curves import curve_rows, draw_curves, write_curves
from oversmoothing.report.collect import collect
from oversmoothing.report.expected import load, select

RESULTS = Path(__file__).parents[2] / "results"


def planned(row: str, column: str, *seeds: dict, missing: bool = False) -> SimpleNamespace:
    """Stands for a ``Planned`` of a table by depth."""
    return SimpleNamespace(
        cell=SimpleNamespace(row=row, column=column),
        config=SimpleNamespace(seeds=[0, 1, 2]),
        result=None if missing else {"seeds": {str(i): seed for i, seed in enumerate(seeds)}},
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


def test_without_training_the_layers_as_they_are() -> None:
    [row] = curve_rows([planned("none", "", layers("before", effective_rank=[7.0]))])
    assert (row["metric"], row["mean"], row["std"]) == ("effective_rank", 7.0, None)


def test_replaced_attention_has_no_maps_and_missing_cells_no_curve() -> None:
    found = layers("after", attention_similarity=[None, 0.5])
    rows = curve_rows([planned("a", "L=2", found), planned("b", "L=2", found, missing=True)])
    assert [(r["row"], r["block"]) for r in rows] == [("a", 2)]


def test_columns_of_a_table_share_an_axis_and_metrics_do_not() -> None:
    low, high = (layers("after", cosine=[c], effective_rank=[30 * c]) for c in (0.1, 0.9))
    depths = curve_rows([planned("none", "L=2", low), planned("none", "L=4", high)])
    a, b, c, d = (axis.get_ylim() for axis in draw_curves(depths, True).axes)
    assert a == b and c == d and a[0] < 0.1 and a[1] > 0.9 and c[1] > 27
    cosine, rank = draw_curves(curve_rows([planned("none", "L=2", high)]), True).axes
    assert cosine.get_ylim()[1] < 2 < rank.get_ylim()[0]


def test_evaluations_on_the_way_come_before_the_result() -> None:
    seeds = [{"m": 3.0 + s, "history": [{"step": 5, "m": 1.0 + s}, {"step": 6}]} for s in (0, 2)]
    run = SimpleNamespace(
        cell=SimpleNamespace(label="a", column="M", metric="m"),
        config=SimpleNamespace(seeds=[0, 1], trainer=SimpleNamespace(iterations=10)),
        result={"seeds": {str(i): seed for i, seed in enumerate(seeds)}},
    )
    rows = wsss_training.curve_rows([run])
    assert [(r["step"], r["mean"], r["seeds"]) for r in rows] == [(5, 2.0, 2), (10, 4.0, 2)]
    [axis] = wsss_training.draw(rows).axes
    assert [*axis.lines[0].get_xdata()] == [5, 10]


def test_files_and_the_error_without_results(tmp_path: Path) -> None:
    found = layers("after", cosine=[0.1, 0.2], effective_rank=[3.0, 2.0])
    paths = write_curves([planned("none", f"L={n}", found) for n in (2, 4)], tmp_path / "curves")
    assert [path.suffix for path in paths] == [".png", ".csv"]
    assert paths[1].read_text().count("\n") == 1 + 2 * 2 * 2
    with pytest.raises(InputError, match="curves: nothing is measured yet"):
        write_curves([planned("none", "L=2", found, missing=True)], tmp_path / "curves")


def numbers(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("table", [*depth_curves.TABLES, "wsss_overnight"])
def test_the_committed_curves_are_those_of_the_records(table: str, tmp_path: Path) -> None:
    """After new results: `make figure NAME=curves`, or `NAME=training`."""
    elsewhere = [f"paths.outputs={tmp_path}"]
    if table == "wsss_overnight":
        cells = select(load(RESULTS / "expected"), table)
        found = collect(cells, elsewhere, RESULTS / f"{table}.jsonl")
        name, rows = f"{table}_training", wsss_training.curve_rows(found)
    else:
        name, rows = f"{table}_curves", curve_rows(depth_curves.planned(table, elsewhere))
    again = write_csv(tmp_path / "rows.csv", rows[0], (row.values() for row in rows))
    assert numbers(RESULTS / f"figures/{name}.csv") == numbers(again)
