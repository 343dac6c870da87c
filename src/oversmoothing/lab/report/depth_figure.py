"""Draws accuracy by depth, with one panel per data set and one line per method."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.panels import (
    COLOURS,
    LINES,
    MARKERS,
    depth_axis,
    draw_line,
    handles,
    panels,
)
from oversmoothing.lab.report.tables import Cell
from oversmoothing.lab.report.verdict import Entry

DEPTH = "backbone.depth="
FIELDS = ("panel", "line", "depth", "n", "mean", "std", "published", "published_std")
QUANTITIES = {
    "val_acc1": "validation accuracy",
    "val_score": "validation accuracy",  # the score of SST-2
    "layers_after.cosine.-1": "mean cosine of two tokens",
    "layers_after.effective_rank.-1": "effective rank",
}
GREY, HOLLOW = "#666666", {"markerfacecolor": "none", "linestyle": (0, (4, 2))}
SPREAD = 0.035  # octaves between neighbouring methods, so that their error bars do not overlap


def draw(entries: Sequence[Entry], stem: Path, pdf: bool = False) -> list[Path]:
    """Writes ``stem``.png and ``stem``.csv (the data) and returns their paths.

    Solid lines: measured mean ± std over seeds. Dashed lines, hollow markers: published values.

    Args:
        entries: cells of a table for which ``by_depth`` holds.
        stem: path of the figure, without suffix.
        pdf: whether to write ``stem``.pdf, too.

    Raises:
        InputError: a file cannot be written.
    """
    paths = save(_figure(entries), stem, pdf)
    return [*paths, write_csv(stem.with_name(f"{stem.name}.csv"), FIELDS, map(_point, entries))]


def depth_of(cell: Cell) -> int | None:
    """Returns the depth L at which a cell is run; None if its overrides do not set it."""
    depths = [o.removeprefix(DEPTH) for o in cell.overrides if o.startswith(DEPTH)]
    return int(depths[-1]) if depths else None


def by_depth(entries: Sequence[Entry]) -> bool:
    """Whether a depth figure can show a table.

    All cells of a line have different depths, there are several depths, and every line has a
    colour of its own.
    """
    points = {(e.cell.block, e.cell.label, depth_of(e.cell)) for e in entries}
    depths, lines = {depth for *_, depth in points}, {label for _, label, _ in points}
    fitting = len(depths) > 1 and len(lines) <= len(COLOURS)
    return fitting and len(points) == len(entries) and None not in depths


@matplotlib.rc_context(LINES)
def _figure(entries: Sequence[Entry]) -> Figure:
    blocks = list(dict.fromkeys(entry.cell.block for entry in entries))
    labels = list(dict.fromkeys(entry.cell.label for entry in entries))
    across = min(len(blocks), 2)
    size = {"each": (4.3, 2.9), "margin": (0.0, 0.8), "least": 6.0}
    figure, axes = panels(blocks, across, **size, sharex=True)
    for block, axis in axes.items():
        _panel(axis, block, [entry for entry in entries if entry.cell.block == block], labels)
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel(_quantity(entries))
    for axis in figure.axes[-across:]:
        axis.set_xlabel("layers L")
    published = any(entry.cell.target is not None for entry in entries)
    shown = {entry.cell.label for entry in entries if _values(entry)}
    measured = {entry.cell.label for entry in entries if entry.measured}
    styles = {label: _style(i) for i, label in enumerate(labels) if label in shown}
    styles |= {label: styles[label] | HOLLOW for label in styles if label not in measured}
    _legend(figure, handles(styles), published)
    return figure


def _quantity(entries: Sequence[Entry]) -> str:
    """Returns metric and unit; empty if the panels have different metrics."""
    metrics, unit = {entry.cell.metric for entry in entries} - {None}, entries[0].cell.about.unit
    if len(metrics) > 1:
        return ""
    [metric] = metrics
    name = QUANTITIES.get(metric) or metric.replace("_", " ")
    return f"{name} ({unit})" if unit else name


def _panel(axis: Axes, block: str, entries: Sequence[Entry], labels: Sequence[str]) -> None:
    for i, label in enumerate(labels):
        line = sorted((e for e in entries if e.cell.label == label), key=lambda e: depth_of(e.cell))
        _draw_values(axis, line, 2 ** (SPREAD * (i - (len(labels) - 1) / 2)), _style(i))
    depth_axis(axis, {depth_of(entry.cell) for entry in entries if _values(entry)})
    axis.tick_params(labelbottom=True)
    values = [value for entry in entries for value in _values(entry)]
    if values and 0 <= min(values) < max(values) / 2:  # from 0, differences stay visible
        axis.set_ylim(bottom=0)
    axis.set_title(block, loc="left", fontweight="bold", fontsize="medium")


def _values(entry: Entry) -> list[float]:
    """Returns the measured mean and the published value of a cell, if it has them."""
    mean = entry.measured.mean if entry.measured else None
    return [value for value in (mean, entry.cell.target) if value is not None]


def _draw_values(axis: Axes, line: Sequence[Entry], shift: float, style: dict[str, str]) -> None:
    """Draws published and measured values; the line breaks at cells without a measurement."""
    x = [depth_of(entry.cell) * shift for entry in line]
    published = [entry.cell.target for entry in line]
    axis.plot(x, published, **style, **HOLLOW, alpha=0.55, markersize=6.5, linewidth=0.9)
    means = [entry.measured.mean if entry.measured else math.nan for entry in line]
    bars = [entry.measured.std if entry.measured else None for entry in line]
    thin = {"markersize": 4.5, "linewidth": 1.5, "elinewidth": 1, "capsize": 2}
    draw_line(axis, x, means, bars, **style, **thin)


def _style(i: int) -> dict[str, str]:
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}


def _legend(figure: Figure, methods: Sequence[Line2D], published: bool) -> None:
    """Draws a legend of the methods above the panels, and of the line styles below them."""
    longest = max((len(line.get_label()) for line in methods), default=0)
    fitting = int(figure.get_figwidth() / (0.65 + 0.07 * longest))  # inches of handle and letters
    columns = max(min(len(methods), fitting), 1)
    figure.legend(handles=methods, frameon=False, loc="outside upper center", ncols=columns)
    kinds = {"measured, mean ± std over seeds": {"color": GREY, "marker": "o"}}
    if published:
        kinds["published"] = {"color": GREY, "marker": "o", **HOLLOW}
    below = {"loc": "outside lower center", "ncols": 2, "frameon": False, "handlelength": 3}
    figure.legend(handles=handles(kinds), **below)


def _point(entry: Entry) -> tuple[object, ...]:
    """Returns the fields of a cell."""
    cell, ours = entry.cell, entry.measured
    numbers = (None, None, None) if ours is None else (ours.n, ours.mean, ours.std)
    return (cell.block, cell.label, depth_of(cell), *numbers, cell.target, cell.std)
