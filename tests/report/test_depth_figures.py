"""Depth figures show their data."""

from pathlib import Path
from string import ascii_letters

from made_up import cell, entries
from matplotlib.lines import Line2D

from oversmoothing.lab.drawing.methods import METHODS
from oversmoothing.lab.report.depth_figure import _figure, by_depth, draw
from oversmoothing.lab.report.verdict import judge

SIGNATURES = {".png": b"\x89PNG", ".pdf": b"%PDF"}


def heights(line: Line2D) -> list[float]:
    return [float(y) for y in line.get_ydata()]


def test_files(tmp_path: Path) -> None:
    for path in draw(entries(), tmp_path / "depth", pdf=True):
        assert path.read_bytes().startswith(SIGNATURES[path.suffix])


def test_a_line_has_one_point_a_depth_or_there_is_no_figure() -> None:
    def fits(depths: list[int], columns: list[str], rows: str = "a") -> bool:
        cells = [
            cell(None, column=column, row=row, overrides=(f"backbone.depth={depth}", column))
            for row in rows
            for depth, column in zip(depths, columns)
        ]
        return by_depth(judge([(own, None) for own in cells]))

    assert by_depth(entries())
    assert fits([4, 8], ["lr=1", "lr=2"]) and not fits([4, 8, 4], ["lr=1", "lr=1", "lr=2"])
    assert not fits([4], ["lr=1"]), "one depth"
    rows = ascii_letters[: len(METHODS)]
    assert fits([4, 8], ["a", "b"], rows), "as many as colours"
    assert not fits([4, 8], ["a", "b"], f"{rows}9")
    assert not by_depth(judge([(cell(None, overrides=()), None)]))


def test_published_values_are_drawn_with_misprints_corrected() -> None:
    _, squirrel = _figure(entries()).axes
    hollow = [line for line in squirrel.lines if line.get_markerfacecolor() == "none"]
    assert [heights(line) for line in hollow] == [[22.37, 19.0], [40.0, 35.5]]


def test_only_data_and_methods_with_a_measurement_are_drawn() -> None:
    def drawn(*unmeasured: str) -> tuple[int, int]:
        left = [(e.cell, e.measured) for e in entries()]
        gone = {(c.block, c.key): None for c, _ in left if {c.block, c.key} & {*unmeasured}}
        figure = _figure(judge([(c, gone.get((c.block, c.key), m)) for c, m in left]))
        return len(figure.axes), len(figure.legends[0].get_lines())

    assert drawn() == (2, 2)
    assert drawn("Squirrel") == (1, 2)
    assert drawn("Squirrel", "base") == (1, 1)
