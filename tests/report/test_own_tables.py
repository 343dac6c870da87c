"""Tables of ours: no published value, no verdict; numbers found anywhere in a result."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import cell, measured, own, own_entries

from oversmoothing.errors import InputError
from oversmoothing.lab.report.publish import counts, markdown, notes, publish, to_csv
from oversmoothing.lab.report.results import (
    Planned,
    collect,
    conditions,
    describe,
    distinct,
    estimate,
    write_records,
)
from oversmoothing.lab.report.verdict import judge
from oversmoothing.lab.store.results import look_up

RESULT = {
    "val_cam_miou": 20.5,
    "val_cam_iou": {"background": 70.0, "cat": None},
    "layers_after": {"cosine": [0.3, 0.4, 0.66]},
    "conditions": {"val": {"cam": "no CRF", "seg_crf": "CRF"}},
}


def test_numbers_are_found_in_mappings_and_lists() -> None:
    assert look_up(RESULT, "val_cam_miou", "r") == 20.5
    assert look_up(RESULT, "val_cam_iou.background", "r") == 70.0
    assert look_up(RESULT, "layers_after.cosine.-1", "r") == 0.66
    assert math.isnan(look_up(RESULT, "val_cam_iou.cat", "r"))


@pytest.mark.parametrize(
    ("metric", "meant"),
    [
        ("val_cam_iou.backgruond", "did you mean 'background'?"),
        ("val_cam_moiu", "did you mean 'val_cam_miou'?"),
        ("layers_after.cosine.3", "'3'"),
        ("layers_after.cosine", "list"),
        ("val_cam_miou.x", "'x'"),
    ],
)
def test_a_number_that_is_not_there_is_one_line(metric: str, meant: str) -> None:
    with pytest.raises(InputError, match="run 1a: metric") as error:
        look_up(RESULT, metric, "run 1a")
    assert meant in str(error.value)


def test_conditions_go_with_their_stage() -> None:
    assert conditions(RESULT, "val_cam_miou") == conditions(RESULT, "val_cam_iou.cat") == "no CRF"
    assert conditions(RESULT, "val_seg_crf_miou") == "CRF"
    assert conditions(RESULT, "layers_after.cosine.-1") == conditions({}, "val_cam_miou") == ""


def test_markdown_has_means_and_seeds_and_no_verdict() -> None:
    text = markdown(own_entries())
    assert "| w/ half | **21.33 ± 0.29, n = 3** | 0.70 ± 0.09, n = 3 |" in text
    assert "| w/ full | missing | missing |" in text
    assert counts(own_entries()) == "4 of 6 cells measured, 2 missing."
    assert text.startswith("**Our own**") and "published" not in text and "✓" not in text


def test_csv_has_the_unit_of_the_column() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(own_entries()))))
    assert [line["unit"] for line in lines[:2]] == ["%", ""]
    assert {line["published"] for line in lines} == {line["difference"] for line in lines} == {""}


def test_weights_and_conditions_stand_below_the_table() -> None:
    ours = replace(measured(1.0, 2.0), weights="from scratch", conditions="val, no CRF")
    pair = [(own("base", "CAM"), ours), (own("half", "CAM"), replace(ours, weights="pretrained"))]
    assert notes(judge(pair[:1])) == ["Weights: from scratch.", "Measured (CAM): val, no CRF."]
    assert notes(judge(pair))[:2] == [
        "Weights (w/ base): from scratch.",
        "Weights (w/ half): pretrained.",
    ]


def test_a_cell_without_a_run_is_never_missing(tmp_path: Path) -> None:
    other = cell(70.0, experiment=None, reason="another system")
    (planned,) = collect([other], [], None)
    assert not planned.missing and planned.measured is None and planned.looked_up() == planned
    write_records(tmp_path / "r.jsonl", [planned])
    assert not (tmp_path / "r.jsonl").exists()


def test_reasons_say_how_many_cells_they_are_about() -> None:
    two = [
        (cell(1.0, key=k, column=c, block="", reason="other"), None)
        for k in "ab"
        for c in ("L=2", "L=4")
    ]
    assert "Not run (all): other." in notes(judge(two))
    more = [*two, (cell(1.0, key="z", block="", reason="no data"), None)]
    assert "Not run (4 cells): other." in notes(judge(more))
    run = [(two[0][0], measured(1.0)), *two[1:]]
    assert "Not run (3 cells): other." in notes(judge(run))


def wsss(columns: int, *rows: tuple[str, ...]) -> list[Planned]:
    """Cells of the real experiment, ``columns`` of them a row and run."""
    run = {"experiment": "wsss_voc_subset", "metric": "val_cam_miou"}
    cells = [
        own(key, "CAM", overrides=words, **run) for key, *words in rows for _ in range(columns)
    ]
    return collect(cells, ["paths.outputs=nowhere"], None)


def test_a_row_of_many_columns_is_one_run() -> None:
    planned = wsss(3, ("a", "aggregator=none"), ("b", "aggregator.gamma=-0.5"))
    assert [p.cell.key for p in distinct(planned)] == ["a", "b"]
    assert "2 runs are missing" in describe(planned, planned)


def test_more_iterations_take_longer_in_proportion() -> None:
    short, long = wsss(1, ("a", "aggregator=none"), ("b", "trainer.iterations=5000"))
    seeds = {str(seed): RESULT for seed in short.config.seeds}
    done = replace(short, result={"seeds": seeds, "seconds": 100.0, "id": "x"})
    ratio = 5000 / short.config.trainer.iterations
    assert estimate(long, [done, long]) == pytest.approx(100.0 * ratio)


def test_publishing_writes_comparisons_and_no_depth_figure(tmp_path: Path) -> None:
    planned = []
    for key, shift in (("base", 0.0), ("half", 1.0)):
        seeds = {str(s): RESULT | {"val_cam_miou": 20.0 + s * (1 + shift)} for s in range(3)}
        (one,) = wsss(1, (key, "seeds=[0,1,2]"))
        planned.append(replace(one, result={"seeds": seeds, "seconds": 1.0, "id": key}))
    paths = publish(judge([p.pair for p in planned]), tmp_path / "results")
    assert sorted(path.name for path in paths) == ["two.csv", "two.md"]
    text = (tmp_path / "results/tables/two.md").read_text()
    assert "w/ half against w/ base" in text and "+1.00 [" in text
