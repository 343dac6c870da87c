"""The table, the files and the figure of a report."""

import csv
import json
import math
from pathlib import Path

import pytest
from PIL import Image

import oversmoothing as osm

LAYERS = ("blocks.0", "blocks.1#1", "blocks.1#2")
OTHER = osm.Report(
    "Net at random initialisation, seed 0",
    LAYERS,
    {"cosine": [0.1, 0.1, 0.2], "mad": [0.5, 0.5, 0.5]},
    {"cosine": [0, 0, 0], "mad": [0, 0, 0]},
    {"cosine": [2, 2, 2], "mad": [2, 2, 2]},
    2,
    (3, 5),
)
REPORT = osm.Report(
    "Net",
    LAYERS,
    {"cosine": [0.25, -0.0371, 0.00001], "mad": [0.5, None, 0.0]},
    {"cosine": [0.5, 0.0, 0.0], "mad": [0.0, None, 0.0]},
    {"cosine": [2, 2, 2], "mad": [2, 0, 2]},
    2,
    (3, 5),
    "nodes",
    ("Left out: padding.",),
    OTHER,
)


def test_the_table() -> None:
    lines = str(REPORT).splitlines()
    assert lines[:2] == ["Net: 2 graphs of 3 to 5 nodes", "Left out: padding."]
    rows = [line.split() for line in lines[3:7]]
    assert rows[0] == ["layer", "cosine", "mad"]
    assert rows[1] == ["blocks.0", "0.250", "(0.100)", "0.500", "(0.500)"]
    assert rows[2] == ["blocks.1#1", "-0.037", "(0.100)", "–", "(0.500)"]
    assert rows[3][1] == "1.0e-05"
    assert len({len(line) for line in lines[3:7]}) == 1
    assert "In parentheses: Net at random initialisation, seed 0." in lines


def test_csv_and_dictionary(tmp_path: Path) -> None:
    REPORT.to_csv(tmp_path / "layers.csv")
    with (tmp_path / "layers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == list(LAYERS)
    assert [float(row["cosine"]) for row in rows] == REPORT["cosine"]
    assert rows[1]["mad"] == "" and rows[0]["cosine_std"] == "0.5"
    assert [float(row["cosine_reference"]) for row in rows] == OTHER["cosine"]
    found = json.loads(json.dumps(REPORT.to_dict()))
    assert found["values"] == REPORT.values and found["reference"]["values"] == OTHER.values


def test_the_figure_shows_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a: (figures.append(self), save(self, *a)))
    REPORT.plot(tmp_path / "layers.png")
    assert Image.open(tmp_path / "layers.png").size[0] > 500
    [figure] = figures
    assert [panel.get_title() for panel in figure.axes] == ["cosine", "mad"]
    own, other = figure.axes[1].lines
    assert own.get_linestyle() == "-" and other.get_linestyle() == "--"
    assert math.isnan(own.get_ydata()[1]) and list(other.get_ydata()) == OTHER["mad"]


def test_the_table_of_a_notebook_is_escaped() -> None:
    html = REPORT._repr_html_()
    assert html.count("<tr>") == 4 and "blocks.1#2" in html and "–" in html
