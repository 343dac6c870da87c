"""Draws accuracy by depth, with one panel per data set and one line per method."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.methods import METHODS, shown, styles_of
from oversmoothing.lab.drawing.panels import LINES, beside, depth_axis, handles, panels
from oversmoothing.lab.report.tables import Cell
from oversmoothing.lab.report.verdict import Entry, Verdict

DEPTH = "backbone.depth="
QUANTITIES = {
    "val_acc1": "validation accuracy",
    "val_score": "validation accuracy",  # the score of SST-2
    "layers_after.cosine.-1": "mean cosine of two tokens",
    "layers_after.effective_rank.-1": "effective rank",
}
GREY, HOLLOW = "#666666", {"markerfacecolor": "none", "linestyle": (0, (4, 2))}
SPREAD = 0.05  # octaves between neighbouring methods, so that their seeds do not overlap
LEAST = 10  # points that the y-axis spans, so that small differences look small


def draw(entries: Sequence[Entry], stem: Path, pdf: bool = False) -> list[Path]:
    """Writes ``stem``.png and returns its path; the CSV of the table has the data.

    Solid lines: measured means, with a dot for each seed. Dashed lines, hollow markers: published.
    What waits to be measured, a whole data set or method, is left out.

    Args:
        entries: cells of a table for which ``by_depth`` holds.
        stem: path of the figure, without suffix.
        pdf: whether to write ``stem``.pdf as well.

    Raises:
        InputError: a file cannot be written.
    """
    return save(_figure(entries), stem, pdf)


def depth_of(cell: Cell) -> int | None:
    """Returns the depth L at which a cell is run; None if its overrides do not set it."""
    depths = [o.removeprefix(DEPTH) for o in cell.overrides if o.startswith(DEPTH)]
    return int(depths[-1]) if depths else None


def by_depth(entries: Sequence[Entry]) -> bool:
    """Whether a depth figure can show a table.

    All cells of a line have different depths, there are several depths, and there are no more
    lines than colours.
    """
    points = {(e.cell.block, e.cell.label, depth_of(e.cell)) for e in entries}
    depths, lines = {depth for *_, depth in points}, {label for _, label, _ in points}
    fitting = len(depths) > 1 and len(lines) <= len(METHODS)
    return fitting and len(points) == len(entries) and None not in depths


def _with_numbers(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the cells of the data sets and methods of which something is measured.

    Published methods that the table does not run, for a reason that it gives, are kept.
    """
    blocks = {e.cell.block for e in entries if e.measured}
    own = [e for e in entries if e.cell.block in blocks and _values(e)]
    labels = {e.cell.label for e in own if e.measured or e.verdict is Verdict.NOT_RUN}
    return [e for e in entries if e.cell.block in blocks and e.cell.label in labels]


@matplotlib.rc_context(LINES)
def _figure(entries: Sequence[Entry]) -> Figure:
    entries = _with_numbers(entries)
    blocks = list(dict.fromkeys(entry.cell.block for entry in entries))
    styles = styles_of(entry.cell.label for entry in entries)
    across = min(len(blocks), 2)
    size = {"each": (2.6, 2.2), "margin": (0.0, 0.9), "least": 4.6}
    figure, axes = panels(blocks, across, **size, sharex=True)
    for block, axis in axes.items():
        _panel(axis, [entry for entry in entries if entry.cell.block == block], styles)
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel(_quantity(entries))
    for axis in figure.axes[-across:]:
        axis.set_xlabel("layers")
    _legend(figure, entries, styles)
    return figure


def _quantity(entries: Sequence[Entry]) -> str:
    """Returns metric and unit; empty if the panels have different metrics."""
    metrics, unit = {entry.cell.metric for entry in entries} - {None}, entries[0].cell.about.unit
    if len(metrics) > 1:
        return ""
    [metric] = metrics
    name = QUANTITIES.get(metric) or metric.replace("_", " ")
    return f"{name} ({unit})" if unit else name


def _panel(axis: Axes, entries: Sequence[Entry], styles: Mapping[str, dict[str, Any]]) -> None:
    for (label, style), shift in zip(styles.items(), beside(len(styles), SPREAD)):
        line = sorted((e for e in entries if e.cell.label == label), key=lambda e: depth_of(e.cell))
        _draw_values(axis, line, shift, style)
    depth_axis(axis, {depth_of(entry.cell) for entry in entries if _values(entry)})
    axis.tick_params(labelbottom=True)
    values = [value for entry in entries for value in _values(entry)]
    if values and 0 <= min(values) < max(values) / 2:  # from 0, differences stay visible
        axis.set_ylim(bottom=0)
    elif values and min(values) > LEAST and (low := axis.get_ylim()[0]) + LEAST > max(values):
        axis.set_ylim(low, low + LEAST)
    about = "" if entries[0].cell.block else entries[0].cell.about.title.partition(",")[0] + "\n"
    axis.set_title(about + _finding(entries), loc="left", fontsize=8.5)


def _finding(entries: Sequence[Entry]) -> str:
    """Says which line is the highest at the greatest depth; of a single line, both its ends."""
    block = entries[0].cell.block
    known = sorted((e for e in entries if e.measured), key=lambda e: depth_of(e.cell))
    if not known:
        return block
    depth = depth_of(known[-1].cell)
    best = max((e for e in known if depth_of(e.cell) == depth), key=lambda e: e.measured.mean)
    digits = 1 if max(entry.measured.mean for entry in known) > 2 else 2
    end = f"{shown(best.cell.label)} {best.measured.mean:.{digits}f}"
    if len({entry.cell.label for entry in known}) > 1:
        return f"{block} at {depth}: {end}".strip()
    start = f"{known[0].measured.mean:.{digits}f} with {depth_of(known[0].cell)} layers"
    return f"{block} {end} with {depth}, {start}".strip()


def _values(entry: Entry) -> list[float]:
    """Returns the measured mean and the published value of a cell, if it has them."""
    mean = entry.measured.mean if entry.measured else None
    return [value for value in (mean, entry.cell.target) if value is not None]


def _draw_values(axis: Axes, line: Sequence[Entry], shift: float, style: dict[str, Any]) -> None:
    """Draws published and measured values; the line breaks at cells without a measurement."""
    x = [depth_of(entry.cell) * shift for entry in line]
    published = [entry.cell.target for entry in line]
    axis.plot(x, published, **style | HOLLOW, markersize=6.5, linewidth=0.8, zorder=3)
    means = [entry.measured.mean if entry.measured else math.nan for entry in line]
    axis.plot(x, means, **style, markersize=4, linewidth=1.4)
    seeds = [(at, value) for at, e in zip(x, line) if e.measured for value in e.measured.values]
    if seeds:
        axis.scatter(*zip(*seeds), s=5, color=style["color"], alpha=0.5, linewidths=0)


def _legend(figure: Figure, entries: Sequence[Entry], styles: Mapping[str, dict[str, Any]]) -> None:
    """Draws a legend of the methods above the panels, and of the kinds of values below them."""
    measured = {entry.cell.label for entry in entries if entry.measured}
    named = {
        shown(label): style if label in measured else style | HOLLOW
        for label, style in styles.items()
    }
    longest = max(map(len, named))
    fitting = int(figure.get_figwidth() / (0.55 + 0.07 * longest))  # inches of handle and letters
    above = {"loc": "outside upper center", "ncols": max(min(len(named), fitting), 1)}
    figure.legend(handles=handles(named), frameon=False, columnspacing=1, **above)
    kinds = {"mean and seeds": {"color": GREY, "marker": "o", "markersize": 4}}
    if any(entry.cell.target is not None for entry in entries):
        kinds["published"] = {"color": GREY, "marker": "o", **HOLLOW}
    below = {"loc": "outside lower center", "ncols": 3, "frameon": False}
    figure.legend(handles=handles(kinds), **below)
