"""Markdown and CSV say the same: cells, counts, notes, and comparisons seed by seed."""

import csv
import io
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import cell, entries, measured, own, own_entries
from scipy.stats import ttest_rel

from oversmoothing.lab.report.page import Section, page
from oversmoothing.lab.report.publish import (
    comparisons,
    every_cell,
    markdown,
    publish,
    to_csv,
)
from oversmoothing.lab.report.verdict import Entry, Verdict, judge


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+\.\d+", text)


def table_lines(text: str, sign: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(sign)]


def lines_of_csv(found: list[Entry]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(found))))


def test_csv_holds_what_the_markdown_rounds() -> None:
    details = [line.split(" | ") for line in table_lines(every_cell(entries()), "| ")[2:]]
    for entry, line, fields in zip(entries(), lines_of_csv(entries()), details, strict=True):
        _, _, column, n, ours, published, difference, word, run = fields
        assert (line["column"], line["verdict"]) == (column, word)
        assert run.removesuffix("|").strip() == (line["run"] or entry.cell.command)
        [shown, *_] = numbers(published)
        assert float(shown) == pytest.approx(float(line["published"]), abs=0.05)
        if line["n"]:
            spread = f" ± {float(line['std']):.2f}" if line["std"] else ""
            assert ours == f"{float(line['mean']):.2f}{spread}"
            assert (line["n"], difference) == (n, f"{float(line['difference']):+.2f}")


def test_csv_keeps_every_seed_exactly() -> None:
    values = (80.1, 79.7, 100 / 3)
    [line] = lines_of_csv(judge([(cell(80.0), measured(*values))]))
    read = tuple(map(float, line["values"].split()))
    assert read == values
    assert float(line["mean"]) == statistics.fmean(read)
    assert float(line["std"]) == statistics.stdev(read)
    assert float(line["difference"]) == pytest.approx(statistics.fmean(read) - 80.0)


def test_the_best_of_a_column_is_bold_and_a_missing_one_never() -> None:
    best = {(e.cell.block, e.cell.column): e.cell.key for e in entries() if e.best}
    assert best == {
        ("Cora", "L=2"): "base",
        ("Cora", "L=16"): "base",
        ("Squirrel", "L=2"): "base",
    }  # not ours, of one seed
    text = markdown(entries())
    assert len(re.findall(r"\*\*\d", text)) == 3 + text.count("**3 of")


def test_readings_are_rows_of_their_own_and_meet_their_own_baseline() -> None:
    base, ours = cell(60.0, 1.0, "base"), cell(70.0, 1.0)
    low, high = measured(50.0, 50.1), measured(80.0, 80.1)
    deep = [(replace(base, reading="deep"), high), (replace(ours, reading="deep"), low)]
    found = judge([(base, low), (ours, low), *deep])
    assert [e.verdict for e in found][1::2] == [Verdict.OFF, Verdict.CONTRADICTED]
    assert "| w/ ours, deep | 50.05" in markdown(found)


def test_files_are_written_and_repeatable(tmp_path: Path) -> None:
    paths = publish(entries(), tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in paths]
    assert names[:2] == ["tables/one.md", "tables/one.csv"]
    assert {Path(name).parent.name for name in names[2:]} == {"figures"}
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in publish(entries(), tmp_path)] == first


def test_a_row_is_compared_with_its_own_baseline_in_each_block() -> None:
    rows = {"base": (1.0, 2.0), "half": (3.0, 4.5), "long": (5.0, 6.0), "long_half": (6.0, 8.0)}
    bases = {"long": {"baseline": None}, "long_half": {"baseline": "long"}}
    cells = [
        (own(key, "CAM", block=block, **bases.get(key, {})), measured(*values))
        for block in ("cosine", "rank")
        for key, values in rows.items()
    ]
    lines = comparisons(judge(cells))[1:]
    pairs = ("w/ half against w/ base", "w/ long_half against w/ long")
    assert [line[0] for line in lines] == [f"{b}: {p}" for b in ("cosine", "rank") for p in pairs]
    assert lines[1][1].startswith("+1.50")


def test_published_tables_and_unmeasured_ones_have_no_comparisons() -> None:
    assert comparisons(entries()) == []
    assert comparisons(judge([(e.cell, None) for e in own_entries()])) == []
    only = [(e.cell, e.measured if e.cell.key == "base" else None) for e in own_entries()]
    assert comparisons(judge(only)) == []


def test_every_format_shows_the_same_comparison() -> None:
    [head, half] = comparisons(own_entries())
    assert head == ["", "CAM", "cosine"] and half[0] == "w/ half against w/ base"
    p = ttest_rel([21.0, 21.5, 21.5], [20.0, 21.0, 19.5]).pvalue
    assert half[1].startswith("+1.17 [") and half[1].endswith(f"p = {p:.3f}, n = 3")
    assert half[1] in markdown(own_entries())
    assert half[1] in page("x", [Section("x", entries=own_entries())])
