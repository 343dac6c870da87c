"""The published numbers are those of the paper, and a faulty file is met with one line."""

import re
import shutil
from pathlib import Path

import pytest
from made_up import measured

from oversmoothing.errors import InputError
from oversmoothing.report.cells import Cell
from oversmoothing.report.expected import load, select
from oversmoothing.report.grid import judge
from oversmoothing.report.remarks import notes
from oversmoothing.report.verdict import Verdict, verdict
from oversmoothing.tuning.files import write_best

FILE = Path(__file__).parents[2] / "results" / "expected"
SMALL = """
tables:
  one:
    {title: One, source: Paper, unit: "%", experiment: e, metric: m, tolerance: 1, runs: 5,
     baseline: a,
     columns: {L=2: [depth=2], L=4: [depth=4]},
     rows: {a: {label: A, overrides: [x=a]}, b: {label: B, std_is: fraction, overrides: [x=b]}},
     cells: {a: [1.0 ± 0.5, –], b: [3.00, 4.0 ± 0.02]}}
"""
READINGS = """
  again:
    of: one
    readings:
      - {label: dropout, overrides: [dropout=0.3], rows: [b]}
      - {label: residual, overrides: [residual=1], columns: [L=4], not_run: too long}
"""


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return load(FILE)


def cell(cells: list[Cell], table: str, block: str, row: str, column: str) -> Cell:
    (found,) = select(cells, table, [block], [row], [column])
    return found


def loaded(folder: Path, text: str) -> list[Cell]:
    path = folder / "expected.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)


@pytest.mark.parametrize(("table", "blocks"), [("table5", 4), ("table6", 3)])
def test_every_cell_is_there_once(cells: list[Cell], table: str, blocks: int) -> None:
    chosen = [c for c in select(cells, table) if c.value is not None]  # controls have none
    assert len(chosen) == blocks * 5 * 5
    assert len({(c.block, c.key, c.column) for c in chosen}) == len(chosen)
    assert len({c.overrides for c in chosen}) == len(chosen)


@pytest.mark.parametrize(
    ("table", "block", "row", "column", "value", "std"),
    [
        ("table5", "Cora", "vanilla", "L=2", 81.75, 0.51),
        ("table5", "Cora", "layernorm", "L=16", 7.79, 0.0),
        ("table5", "Cora", "centered", "L=32", 52.12, 7.0),
        ("table5", "CiteSeer", "pairnorm", "L=8", 55.76, 4.45),
        ("table5", "Chameleon", "vanilla", "L=32", 23.37, 0.0),
        ("table5", "Chameleon", "centered", "L=32", 39.05, 11.0),
        ("table5", "Squirrel", "layernorm", "L=32", 19.40, 0.19),
        ("table5", "Squirrel", "contranorm", "L=16", 32.37, 0.93),
        ("table5", "Squirrel", "centered", "L=8", 38.12, 8.0),
        ("table6", "Cora", "vanilla", "L=4", 81.22, 2.2),
        ("table6", "CiteSeer", "contranorm", "L=2", 69.45, 0.2),
        ("table6", "Chameleon", "pairnorm", "L=2", 67.32, 7.7),
        ("table6", "Chameleon", "centered", "L=32", 50.11, 1.3),
    ],
)
def test_transcription(
    cells: list[Cell], table: str, block: str, row: str, column: str, value: float, std: float
) -> None:
    found = cell(cells, table, block, row, column)
    assert (found.value, found.std) == (value, pytest.approx(std))


def test_sums_of_the_printed_tables(cells: list[Cell]) -> None:
    """Added up from the paper's text; a slip in any digit shows."""
    tables = ("table5", "table6")
    sums = {t: round(sum(c.value or 0 for c in select(cells, t)), 2) for t in tables}
    assert sums == {"table5": 4515.68, "table6": 4469.03}


def test_the_misprint_is_kept_and_corrected(cells: list[Cell]) -> None:
    (found,) = [c for c in cells if c.corrected is not None and not c.reading]
    assert (found.value, found.target) == (23.37, 22.37)
    assert found.target == pytest.approx(100 * 102 / 456, abs=0.005)
    assert "misprint" in found.note


def test_overrides_make_the_papers_rows(cells: list[Cell]) -> None:
    found = cell(cells, "table5", "Cora", "centered (w/ Ours)", "L=16")
    assert set(found.overrides) == {
        "data=cora",
        "aggregator=centered",
        "aggregator@then=layernorm",
        "backbone.depth=16",
    }
    assert (found.experiment, found.metric, found.runs) == ("gnn_table5", "test_accuracy", 5)


def test_a_cell_of_table6_has_the_settings_of_its_search_or_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    (tmp_path / "tuning/table6").mkdir(parents=True)
    shutil.copytree(FILE, tmp_path / "expected")
    found = {"overrides": ["trainer.lr=0.02", "seeds=[0,1]"], "val_accuracy": 80.0}
    write_best(tmp_path / "tuning/table6", ("Cora", "centered", "L=4"), found)
    every = select(load(tmp_path / "expected"), "table6")
    [tuned] = [cell for cell in every if cell.reason is None]
    assert (tuned.block, tuned.key, tuned.column) == ("Cora", "centered", "L=4")
    assert tuned.overrides[-2:] == ("trainer.lr=0.02", "seeds=[0,1]")
    lacking = "no settings yet; `make tune NAME=table6` finds them"
    assert {c.reason for c in every} == {None, lacking}
    assert [cell for cell in every if cell.runnable] == [tuned]
    plain = select(load(tmp_path / "expected", tuned=False), "table6")
    assert {c.reason for c in plain} == {None}
    assert tuned.overrides[:-2] in [cell.overrides for cell in plain]


def test_every_cell_of_table5_is_run(cells: list[Cell]) -> None:
    assert {c.reason for c in select(cells, "table5")} == {None}


def test_select_knows_other_names_and_case(cells: list[Cell]) -> None:
    assert {c.key for c in select(cells, "table5", ["CORA"], ["none", "centered"])} == {
        "vanilla",
        "centered",
    }
    assert len(select(cells, "table5", columns=["L=2", "L=32"])) == 40


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("tabel5",), "table5"),
        (("table5", ["coral"]), "Cora"),
        (("table5", [], ["centred"]), "centered"),
        (("table5", [], [], ["L=3"]), "L=32"),
    ],
)
def test_select_says_what_was_meant(cells: list[Cell], arguments: tuple, meant: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"did you mean {meant!r}?")):
        select(cells, *arguments)


def test_table_without_blocks(tmp_path: Path) -> None:
    found = loaded(tmp_path, SMALL)
    assert [(c.key, c.column, c.value, c.std) for c in found] == [
        ("a", "L=2", 1.0, 0.5),  # "–" makes no cell
        ("b", "L=2", 3.0, None),
        ("b", "L=4", 4.0, 2.0),
    ]


def test_readings_repeat_the_published_values_under_other_overrides(tmp_path: Path) -> None:
    plain = {(c.key, c.column): c for c in select(loaded(tmp_path, SMALL), "one")}
    found = select(loaded(tmp_path, SMALL + READINGS), "again")
    assert [(c.reading, c.key, c.column) for c in found] == [
        ("dropout", "b", "L=2"),
        ("dropout", "b", "L=4"),
        ("residual", "b", "L=4"),
    ]
    for c in found:
        same = plain[c.key, c.column]
        assert (c.value, c.std) == (same.value, same.std)
        assert c.overrides[:-1] == same.overrides
    assert [c.overrides[-1] for c in found] == ["dropout=0.3", "dropout=0.3", "residual=1"]
    assert [c.reason for c in found] == [None, None, "too long"]


def test_a_reading_has_its_own_notes_and_not_those_of_the_plain_rows(tmp_path: Path) -> None:
    text = SMALL.replace("label: B,", "label: B, note: without dropout,")
    text += READINGS.replace("label: dropout,", "label: dropout, note: with dropout,")
    cells = loaded(tmp_path, text)
    assert {c.note for c in select(cells, "one", rows=["b"])} == {"without dropout"}
    again = select(cells, "again")
    assert [c.note for c in again] == ["with dropout", "with dropout", ""]
    assert "B, dropout: with dropout" in notes(judge([(c, None) for c in again]))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("3.00, 4.0 ± 0.02", "3.00", ["one", "b", "1 values for 2 columns"]),
        ("3.00, 4.0", "3.00, 4.0.0", ["one", "b", "L=4", "4.0.0"]),
        (", b: [3.00, 4.0 ± 0.02]", "", ["one", "'b'", "missing"]),
        ("metric: m, ", "", ["one", "'metric'", "missing"]),
        ("title: One, ", "", ["one", "title", "missing"]),
        ("metric: m", "metrik: m", ["one", "metrik", "did you mean 'metric'?"]),
        ("tolerance: 1", "tolerance: -1", ["one", "tolerance", "-1"]),
        ("runs: 5", "runs: five", ["one", "runs", "five"]),
        ("std_is: fraction", "std_is: percent", ["one", "b", "percent"]),
        ("[x=b]", "x=b", ["one", "b", "overrides"]),
        ("baseline: a", "baseline: c", ["one", "baseline"]),
        ("b: [3.00", "c: [3.00", ["one", "'c'"]),
        ("a: {label: A", "b: {label: A", ["b"]),  # a key twice
        ("tables:", "tables: [", []),
        ("tables:", "tabels:", ["tabels", "did you mean 'tables'?"]),
        ("of: one", "of: won", ["again", "won"]),
        ("rows: [b]", "rows: [d]", ["again", "'d'"]),
        ("label: residual, ", "", ["again", "label"]),
    ],
)
def test_a_faulty_file_is_met_with_one_line(
    tmp_path: Path, old: str, new: str, named: list[str]
) -> None:
    good = SMALL + READINGS
    assert old in good
    with pytest.raises(InputError) as error:
        loaded(tmp_path, good.replace(old, new, 1))
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in ["expected.yaml", *named])


def test_a_value_that_is_not_at_hand_is_run_and_not_judged(tmp_path: Path) -> None:
    found = loaded(tmp_path, SMALL.replace("a: [1.0 ± 0.5, –]", 'a: ["?", –]'))
    base, ours, _ = found
    assert (base.value, base.target, base.runnable) == (None, None, True)
    one, two = measured(1.0, 1.1), measured(99.0, 99.1)
    assert verdict(base, one) is Verdict.MEASURED
    assert verdict(ours, two, (base, one)) is Verdict.OFF  # nothing says which should be higher


def test_an_empty_cell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="L=4"):
        loaded(tmp_path, SMALL.replace("[1.0 ± 0.5, –]", "[1.0 ± 0.5, null]"))


def test_a_remark_overrides_one_cell_only(tmp_path: Path) -> None:
    remark = "remarks: [{row: b, column: L=4, overrides: [x=c]}],\n     cells:"
    found = loaded(tmp_path, SMALL.replace("cells:", remark) + READINGS)
    assert [c.overrides for c in select(found, "one")] == [
        ("x=a", "depth=2"),
        ("x=b", "depth=2"),
        ("x=b", "depth=4", "x=c"),
    ]
    (again,) = [c for c in select(found, "again") if c.overrides[-1] == "residual=1"]
    assert again.overrides == ("x=b", "depth=4", "x=c", "residual=1")


def test_a_folder_is_all_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "two.yaml").write_text(SMALL.replace(" one:", " two:"), encoding="utf-8")
    (tmp_path / "README.md").write_text("no table")
    assert dict.fromkeys(c.table for c in load(tmp_path)) == {"one": None, "two": None}
    (tmp_path / "three.yaml").write_text(SMALL, encoding="utf-8")
    with pytest.raises(InputError, match=r"three\.yaml: one: another file|one\.yaml: one: another"):
        load(tmp_path)


def test_an_empty_folder_is_met_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected files of tables"):
        load(tmp_path)


def test_a_missing_file_is_met_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load(tmp_path / "nowhere.yaml")


def test_a_remark_on_no_cell_is_refused(tmp_path: Path) -> None:
    remark = "remarks: [{row: a, column: L=3, note: n}],\n     cells:"
    with pytest.raises(InputError, match="L=3"):
        loaded(tmp_path, SMALL.replace("cells:", remark))
