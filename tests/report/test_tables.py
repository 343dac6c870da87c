"""Markdown, CSV and LaTeX say the same."""

import csv
import io
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import cell, entries, measured

from oversmoothing.errors import InputError
from oversmoothing.lab.report.publish import (
    counts,
    every_cell,
    latex,
    markdown,
    publish,
    tex,
    to_csv,
    write_latex,
)
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.report.verdict import Entry, Verdict, judge, layout


def numbers(text: str) -> list[str]:
    """Mean, std, n, published value of every table row, in reading order."""
    return re.findall(r"\d+\.\d+", text)


def table_lines(text: str, sign: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(sign)]


def test_every_verdict_is_among_the_cells() -> None:
    found = [entry.verdict for entry in entries()]
    assert set(found) == set(Verdict) - {Verdict.CONTROL, Verdict.MEASURED}
    assert found[3] is Verdict.CONTRADICTED


def test_markdown_and_latex_hold_the_same_numbers() -> None:
    ours = entries()
    md = "\n".join(table_lines(markdown(ours), "| w/"))
    tex_rows = "\n".join(table_lines(latex(ours), "w/"))
    assert numbers(md) == numbers(tex_rows)
    assert len(numbers(md)) > 15


def test_csv_holds_what_the_markdown_rounds() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(entries()))))
    details = [line.split(" | ") for line in table_lines(every_cell(entries()), "| ")[2:]]
    assert len(lines) == len(details) == len(entries())
    commands = [entry.cell.command for entry in entries()]
    for line, command, fields in zip(lines, commands, details):
        _, _, column, n, ours, published, difference, word, run = fields
        assert (line["column"], line["verdict"]) == (column, word)
        assert run.removesuffix("|").strip() == (line["run"] or command)
        assert numbers(published)[0] == f"{float(line['published']):.{decimals(published)}f}"
        if line["n"]:
            spread = f" ± {float(line['std']):.2f}" if line["std"] else ""
            assert ours == f"{float(line['mean']):.2f}{spread}"
            assert (line["n"], difference) == (n, f"{float(line['difference']):+.2f}")


def decimals(published: str) -> int:
    return len(numbers(published)[0].partition(".")[2])


def test_csv_keeps_every_seed_exactly() -> None:
    values = (80.1, 79.7, 100 / 3)
    (line,) = csv.DictReader(io.StringIO(to_csv(judge([(cell(80.0), measured(*values))]))))
    read = tuple(map(float, line["values"].split()))
    assert read == values
    assert float(line["mean"]) == statistics.fmean(read)
    assert float(line["std"]) == statistics.stdev(read)
    assert float(line["difference"]) == pytest.approx(statistics.fmean(read) - 80.0)


def test_a_spread_read_as_a_fraction_is_counted_as_printed_too() -> None:
    pairs = [
        (cell(80.0, 3.0, printed_std=0.03), measured(82.0, 82.0)),  # within 2.7 points, not 1
        (cell(70.0, 0.5, "base", printed_std=0.5), measured(70.1, 70.2)),
    ]
    text = markdown(judge(pairs))
    assert "2 of 2 cells within" in text
    assert "the ± of w/ ours read as printed, in points: 1 of 2 cells within" in text
    assert "as printed" not in markdown(judge(pairs[1:]))


def test_missing_and_not_run_are_shown() -> None:
    text = markdown(entries())
    assert "missing (35.5)" in text
    assert "not run (19.00)" in text
    assert "too | long" in text
    assert "missing" in latex(entries())
    assert "8 cells within, 2 off, 1 contradicted, 1 not run, 1 missing." in counts(entries())


def test_the_misprint_is_marked_and_explained() -> None:
    text = markdown(entries())
    assert "22.37 ± 0.00, n = 2 (23.37† ✓)" in text
    assert "Squirrel, w/ base, L=2: a misprint" in text
    lines = list(csv.DictReader(io.StringIO(to_csv(entries()))))
    assert [(line["published"], line["corrected"]) for line in lines][4] == ("23.37", "22.37")
    assert sum(bool(line["corrected"]) for line in lines) == 1


def test_the_best_of_a_column_is_bold_and_a_missing_one_never() -> None:
    best = {(e.cell.block, e.cell.column): e.cell.key for e in entries() if e.best}
    assert best == {("Cora", "L=2"): "base", ("Cora", "L=16"): "base", ("Squirrel", "L=2"): "ours"}
    for text, bold in ((markdown(entries()), r"\*\*\d"), (latex(entries()), r"\\textbf\{\d")):
        assert len(re.findall(bold, text)) == 3 + text.count("**3 of")


def test_readings_are_rows_of_their_own_and_meet_their_own_baseline() -> None:
    base, ours = cell(60.0, 1.0, "base"), cell(70.0, 1.0)
    low, high = measured(50.0, 50.1), measured(80.0, 80.1)
    found = judge(
        [
            (base, low),
            (ours, low),
            (replace(base, reading="deep"), high),
            (replace(ours, reading="deep"), low),
        ]
    )
    assert [e.verdict for e in found][1::2] == [Verdict.OFF, Verdict.CONTRADICTED]
    assert "| w/ ours, deep | 50.05" in markdown(found)


@pytest.mark.parametrize("text", ["100 % & more_of {this} #1 $2", "a\\b~c^d", "7.79 ± 0.00 † ≤ γ"])
def test_latex_escapes(text: str) -> None:
    written = tex(text)
    assert not re.search(r"(?<!\\)[%&_#]", written)
    assert written.isascii()


def test_the_latex_table_is_whole() -> None:
    text = latex(entries())
    rows = [line for line in table_lines(text, "w/")]
    assert {line.count(" & ") for line in rows} == {2}
    assert all(line.endswith(r" \\") for line in rows)
    assert text.replace("\\{", "").count("{") == text.replace("\\}", "").count("}")
    assert sorted(re.findall(r"\\begin\{(\w+)\}", text)) == sorted(
        re.findall(r"\\end\{(\w+)\}", text)
    )
    assert len(table_lines(text, "% Cora") + table_lines(text, "% Squirrel")) == len(entries())


def test_files_are_written_and_repeatable(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no place for the table")
    paths = publish(entries(), tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in paths]
    assert names[:2] == ["tables/one.md", "tables/one.csv"]
    assert {Path(name).parent.name for name in names[2:]} == {"figures"}
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in publish(entries(), tmp_path)] == first


def test_latex_is_written_on_request(tmp_path: Path) -> None:
    path = write_latex(entries(), tmp_path / "paper" / "tables")
    assert path.name == "one.tex" and path.read_text() == latex(entries())
    with pytest.raises(InputError, match=r"one\.tex"):
        write_latex(entries(), path)


def test_judging_does_not_depend_on_order() -> None:
    pairs = [(e.cell, e.measured) for e in entries()]
    backwards: list[Entry] = judge(pairs[::-1])
    assert backwards[::-1] == entries()


def test_columns_stand_as_printed_whichever_cell_comes_first() -> None:
    """A reading of the deep columns only, before one of all, must not move them to the front."""
    path = Path(__file__).parents[2] / "results" / "expected"
    cells = select(load(path), "table5_readings")
    for block in layout(judge([(one, None) for one in cells])):
        assert block.columns == ["L=2", "L=4", "L=8", "L=16", "L=32"]


def test_marks_say_which_side_a_value_is_off() -> None:
    runs = {"L=2": measured(60.0, 60.1), "L=8": measured(40.0, 40.1), "L=16": measured(50.0)}
    found = judge([(cell(50.0, column=column), run) for column, run in runs.items()])
    assert [entry.mark for entry in found] == ["▲", "▼", "✓"]
