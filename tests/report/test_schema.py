"""The form of the files of published numbers; a faulty file is met with one line."""

from pathlib import Path

import pytest
from made_up import measured

from oversmoothing.errors import InputError
from oversmoothing.lab.report.publish import notes
from oversmoothing.lab.report.tables import Cell, load, select
from oversmoothing.lab.report.verdict import Verdict, judge, verdict

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
GOOD = SMALL + READINGS
OURS = """
tables:
  ours:
    {title: One, source: here, unit: "%", experiment: e, ours: true, baseline: a,
     columns: {M: {metric: m}, cosine: {metric: layers.cosine.-1, unit: "", bold: false}},
     rows: {a: [x=a], b: {columns: [M], overrides: [x=b]}, c: {baseline: b, overrides: [x=c]}}}
"""


def loaded(folder: Path, text: str) -> list[Cell]:
    path = folder / "expected.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)


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
    ("good", "old", "new", "named"),
    [
        (GOOD, "3.00, 4.0 ± 0.02", "3.00", ["one", "b", "1 values for 2 columns"]),
        (GOOD, "3.00, 4.0", "3.00, 4.0.0", ["one", "b", "L=4", "4.0.0"]),
        (GOOD, ", b: [3.00, 4.0 ± 0.02]", "", ["one", "'b'", "missing"]),
        (GOOD, "metric: m, ", "", ["one", "'metric'", "missing"]),
        (GOOD, "title: One, ", "", ["one", "title"]),
        (GOOD, "metric: m", "metrik: m", ["one", "metrik"]),
        (GOOD, "tolerance: 1", "tolerance: -1", ["one", "tolerance", "-1"]),
        (GOOD, "runs: 5", "runs: five", ["one", "runs", "five"]),
        (GOOD, "std_is: fraction", "std_is: percent", ["one", "b", "percent"]),
        (GOOD, "[x=b]", "x=b", ["one", "b", "overrides"]),
        (GOOD, "baseline: a", "baseline: c", ["one", "baseline"]),
        (GOOD, "b: [3.00", "c: [3.00", ["one", "'c'"]),
        (GOOD, "a: {label: A", "b: {label: A", ["b"]),  # a key twice
        (GOOD, "tables:", "tables: [", []),
        (GOOD, "tables:", "tabels:", ["tabels", "did you mean 'tables'?"]),
        (GOOD, "of: one", "of: won", ["again", "won"]),
        (GOOD, "rows: [b]", "rows: [d]", ["again", "'d'"]),
        (GOOD, "label: residual, ", "", ["again", "label"]),
        (OURS, "columns: [M],", "columns: [N],", ["ours", "b", "'N'"]),
        (OURS, "rows: {", "blocks: {B: {columns: [N]}}, rows: {", ["ours", "B", "'N'"]),
        (OURS, "baseline: b", "baseline: d", ["ours", "c", "'d'"]),
        (OURS, "ours: true, ", "", ["ours", "b", "columns"]),
        (OURS, "ours: true", "ours: true, cells: {}", ["ours", "cells"]),
        (OURS, "{metric: m}", "{}", ["ours", "a", "M", "'metric'"]),
        (OURS, "c: {baseline", "c: {label: a, baseline", ["rows a and c", "the label 'a'"]),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(
    tmp_path: Path, good: str, old: str, new: str, named: list[str]
) -> None:
    assert old in good
    with pytest.raises(InputError) as error:
        loaded(tmp_path, good.replace(old, new, 1))
    [line] = error.value.lines
    assert all(word in line for word in ["expected.yaml", *named])


def test_all_mistakes_of_a_file_come_together(tmp_path: Path) -> None:
    wrong = GOOD.replace("runs: 5", "runs: 0").replace("tolerance: 1", "tolerances: 1")
    wrong = wrong.replace("rows: [b]", "rows: [d]").replace("std_is: fraction", "std_is: percent")
    with pytest.raises(InputError) as error:
        loaded(tmp_path, wrong)
    places = [line.split("expected.yaml: ")[1] for line in error.value.lines]
    keys = ["one: tolerances: ", "one: runs: ", "one: rows: b: std_is: "]
    assert len(places) == 3 and all(any(p.startswith(key) for p in places) for key in keys)


def test_a_value_that_is_not_at_hand_is_run_and_not_judged(tmp_path: Path) -> None:
    found = loaded(tmp_path, SMALL.replace("a: [1.0 ± 0.5, –]", 'a: ["?", –]'))
    base, ours, _ = found
    assert (base.value, base.target, base.runnable) == (None, None, True)
    one, two = measured(1.0, 1.1), measured(99.0, 99.1)
    assert verdict(base, one) is Verdict.MEASURED
    assert verdict(ours, two, (base, one)) is Verdict.OFF  # nothing says which should be higher


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


def test_every_row_has_the_columns_that_it_names(tmp_path: Path) -> None:
    found = loaded(tmp_path, OURS)
    assert [(c.key, c.column) for c in found] == [
        ("a", "M"),
        ("a", "cosine"),
        ("b", "M"),
        ("c", "M"),
        ("c", "cosine"),
    ]
    assert all(c.value is None and c.target is None and c.about.ours for c in found)
    assert [c.baseline for c in found] == [None, None, "a", "b", "b"]
    assert [(c.unit, c.bold) for c in found[:2]] == [(None, True), ("", False)]


def test_a_block_has_the_columns_that_it_and_its_rows_name(tmp_path: Path) -> None:
    blocks = "{all: [], some: {columns: [cosine]}}"
    found = loaded(tmp_path, OURS.replace("[x=c]}}}", f"[x=c]}}}}, blocks: {blocks}}}"))
    assert [(c.key, c.column) for c in select(found, "ours", blocks=["some"])] == [
        ("a", "cosine"),
        ("c", "cosine"),
    ]
    assert len(select(found, "ours", blocks=["all"])) == 5
