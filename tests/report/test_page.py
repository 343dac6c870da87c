"""The page stands alone and shows what the tables show."""

import base64
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from guide import ROOT
from made_up import entries

from oversmoothing.lab.report.page import PAGES, Section, in_short, page, papers
from oversmoothing.lab.report.publish import markdown

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    path = tmp_path / "depth_study.png"
    path.write_bytes(PNG)
    return path


@pytest.fixture
def text(figure: Path) -> str:
    rows = [["panel", "γ"], ["a & b", "<i>-1.05"]]
    sections = [
        Section("Table <b>5", "One.\n\nTwo.", "make table5", entries(), figures=[figure]),
        Section("Rank", rows=rows),
    ]
    return page("Results & more", sections)


def test_nothing_is_fetched(text: str) -> None:
    for value in re.findall(r'\b(?:src|href|srcset|data|action)="([^"]*)', text):
        assert value.startswith(("data:image/", "#"))
    assert not re.search(r"url\(|@import|https?://|<script|<link", text)


def test_the_figure_is_inside(text: str) -> None:
    (source,) = re.findall(r'\bsrc="([^"]*)', text)
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == PNG


def test_what_is_given_is_text_not_html(text: str) -> None:
    for given in ("Table <b>5", "a & b", "<i>-1.05", "make table5", "One.", "Two."):
        assert f">{escape(given)}<" in text


def test_the_numbers_are_those_of_the_markdown(text: str) -> None:
    shown = "\n".join(line for line in markdown(entries()).splitlines() if line.startswith("| w/"))
    grids = "\n".join(re.findall(r'<table class="grid">.*?</table>', text, re.DOTALL))
    inside = re.sub(r' title="[^"]*"', "", grids)
    assert re.findall(r"\d+\.\d+", inside) == re.findall(r"\d+\.\d+", shown)


def test_papers_come_first_with_bars_in_proportion() -> None:
    found = papers(entries())
    shown = page("x", [Section("Table")], found)
    assert shown.index('class="papers"') < shown.index('id="s0"')
    for paper in found:
        assert paper.line in shown
        widths = {kind: int(n) for kind, n in paper.parts}
        assert sum(widths.values()) == len([e for e in entries() if e.cell.value is not None])
        for kind, number in widths.items():
            assert number == sum(e.verdict == kind for e in entries())
            assert f'style="flex-grow: {number}" title="{number} {kind}"' in shown


def test_what_a_page_says_in_short_stands_above_the_bar() -> None:
    for paper in PAGES:
        verdict, *reasons = in_short(ROOT / "results", paper)
        assert verdict.count(". ") < 5 and len(verdict) < 800 and reasons  # five sentences
        assert not {"*", "[", "]"} & {*verdict}
    paper = replace(papers(entries())[0], in_short=["It holds for 1 < 2.", "Since it does."])
    text = page("Results", [], [paper])
    shown = ("It holds for 1 &lt; 2.", '<div class="bar"', "Since it does.")
    assert sorted(shown, key=text.index) == [*shown]
