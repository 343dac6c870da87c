"""Tables 1 to 4 are those of the paper, and every cell that can be run is a command that passes."""

import math
from pathlib import Path

import pytest

from oversmoothing.lab.data.image_set import class_names
from oversmoothing.lab.launch.check import Known, all_problems
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.report.publish import latex, notes
from oversmoothing.lab.report.tables import Cell, load, select
from oversmoothing.lab.report.verdict import judge

FILE = Path(__file__).parents[2] / "results" / "expected"
PUBLISHED = ("table1", "table2", "table3", "table4")
OURS = ("wsss_gamma", "wsss_ablation", "wsss_blocks", "wsss_tries")

WITHOUT_FILES = ("data=scenes", "backbone=deit_ti", "backbone.weights=none", "backbone.sha256=null")


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return [cell for cell in load(FILE) if cell.table in PUBLISHED + OURS]


@pytest.mark.parametrize(
    ("table", "number", "total"),
    [("table1", 34, 2361.7), ("table2", 110, 7598.1), ("table3", 8, 557.7), ("table4", 18, 1106.7)],
)
def test_every_printed_value_is_there(
    cells: list[Cell], table: str, number: int, total: float
) -> None:
    """Totals added up from the paper's text; a slip in any digit shows."""
    chosen = select(cells, table)
    assert len(chosen) == len({(c.key, c.column) for c in chosen}) == number
    assert sum(c.value for c in chosen) == pytest.approx(total)
    assert {(c.std, c.decimals, c.runs) for c in chosen} == {(None, 1, 1)}


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("table1", "rib_s", "test", 70.0),
        ("table1", "rib", "val", 68.3),
        ("table1", "du", "test", 73.6),
        ("table1", "w_ood", "val", 70.7),
        ("table1", "toco", "test", 72.2),
        ("table1", "ours", "val", 72.5),
        ("table2", "1stage", "train", 68.5),
        ("table2", "afa", "bird", 80.7),
        ("table2", "toco", "mIoU", 69.8),
        ("table2", "toco_21k", "boat", 45.4),
        ("table2", "ours", "table", 76.9),
        ("table2", "ours", "tv", 69.9),
        ("table3", "vit_pcm_crf", "mIoU", 71.4),
        ("table3", "ours", "mIoU", 74.1),
        ("table4", "cls", "M", 28.1),
        ("table4", "aux_centered", "Mᵐ", 64.6),
        ("table4", "seg", "Seg.", 66.7),
        ("table4", "reg_centered", "Seg.", 71.8),
    ],
)
def test_transcription(cells: list[Cell], table: str, row: str, column: str, value: float) -> None:
    (found,) = select(cells, table, [], [row], [column])
    assert found.value == value


def test_class_values_average_the_printed_miou_in_every_row_but_ours(cells: list[Cell]) -> None:
    for row in ("1stage", "afa", "toco", "toco_21k", "ours"):
        *classes, mean = [c.value for c in select(cells, "table2", rows=[row])]
        average = math.fsum(classes) / len(classes)
        assert len(classes) == 21
        if row == "ours":
            assert (round(average, 1), mean) == (75.7, 72.5)
        else:
            assert average == pytest.approx(mean, abs=0.15)


def test_classes_are_those_of_the_results(cells: list[Cell]) -> None:
    names = [c.metric.split(".")[-1] for c in select(cells, "table2", rows=["ours"])[:-1]]
    assert names == ["background", *class_names("voc")]


def test_only_ours_is_run_and_only_with_masks(cells: list[Cell]) -> None:
    for table in ("table1", "table2", "table3"):
        chosen = select(cells, table)
        assert {c.key for c in chosen if c.runnable} == {"ours"}
        assert {c.reason for c in chosen if c.key != "ours"} == {"another system"}
        assert all(c.reason for c in chosen)
    val, test = select(cells, "table1", rows=["ours"])
    assert val.runnable and "make table1 ALL=1" in val.reason
    assert not test.runnable and "submission zip" in test.reason


def test_with_centering_stands_against_without(cells: list[Cell]) -> None:
    for table, shares in (("table4", ("", "_centered")), ("wsss_ablation", ("_centered", "_half"))):
        for cell in select(cells, table):
            if share := next((s for s in shares if s and cell.key.endswith(s)), None):
                assert cell.baseline == cell.key.removesuffix(share)
                assert "aggregator=centered" in cell.overrides
            else:
                assert cell.baseline is None and "aggregator=none" in cell.overrides


def test_the_ablation_repeats_table_4_on_the_subset(cells: list[Cell]) -> None:
    def places(table: str) -> set[tuple]:
        chosen = [c for c in select(cells, table) if "half" not in c.key]
        words = [tuple(w for w in c.overrides if not w.startswith("seeds=")) for c in chosen]
        return {(c.key, c.column, c.metric, of) for c, of in zip(chosen, words)}

    assert places("table4") == places("wsss_ablation")


@pytest.mark.parametrize("table", OURS)
def test_our_titles_say_what_they_are_not(cells: list[Cell], table: str) -> None:
    about = select(cells, table)[0].about
    assert "VOC subset, DeiT-Ti, not comparable to published mIoU" in about.title and about.ours
    assert {c.experiment for c in select(cells, table)} == {"wsss_voc_subset"}


def test_every_run_is_a_command_that_passes(cells: list[Cell], generated: Path) -> None:
    known, fixed = Known(), [*WITHOUT_FILES, f"paths.cache={generated}"]  # images are read once
    runs = dict.fromkeys((f"experiment={c.experiment}", *c.overrides) for c in cells if c.runnable)
    assert len(runs) > 25
    for words in runs:
        random = ["task.adaptation=0"] * any("task.adaptation" in word for word in words)
        assert all_problems(compose_config([*words, *fixed, *random]), known) == []


def test_longer_is_twice_as_long(cells: list[Cell]) -> None:
    for key in ("none_longer", "cold_longer"):
        (longer, *_) = select(cells, "wsss_tries", rows=[key])
        plain = compose_config([f"experiment={longer.experiment}"])
        assert f"trainer.iterations={2 * plain.trainer.iterations}" in longer.overrides


@pytest.mark.parametrize("table", PUBLISHED + OURS)
def test_latex_knows_every_letter(cells: list[Cell], table: str) -> None:
    lines = latex(judge([(c, None) for c in select(cells, table)])).splitlines()
    assert "".join(line for line in lines if not line.startswith("%")).isascii()


def test_notes_say_why_not(cells: list[Cell]) -> None:
    lines = notes(judge([(c, None) for c in select(cells, "table1")]))
    assert sum(line.startswith("Not run") for line in lines) == 3
    assert "Not run (32 cells): another system." in lines
