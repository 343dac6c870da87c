"""Draws the figure of a report."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversmoothing.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from oversmoothing.diagnosis.report import Report

COLUMNS = 3  # panels in a row
SHARES = ("cosine", "mean_share", "attention_similarity")  # shown from 0 to 1
MARKED = 24  # largest number of layers that are drawn with markers


def plot(report: "Report", path: Path) -> None:
    """Draws one panel per metric over the layers, the reference dashed.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(f"plot: needs matplotlib ({error}); pip install matplotlib") from error
    columns = min(COLUMNS, len(report.values))
    rows = math.ceil(len(report.values) / columns)
    figure = Figure((3.2 * columns, 2.4 * rows + 0.3), dpi=150, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, metric in zip(panels, report.values):
        _panel(panel, report, metric)
    for panel in panels[len(report.values) :]:
        panel.remove()
    if report.reference:
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written ({error}); choose another") from error


def _panel(panel: "Axes", report: "Report", metric: str) -> None:
    marker = "o" if len(report.layers) <= MARKED else ""
    depth = range(1, len(report.layers) + 1)
    for of, style, colour in ((report, "-", "#0072B2"), (report.reference, "--", "#777777")):
        if of is not None:
            values = [math.nan if value is None else value for value in of.values[metric]]
            look: dict[str, Any] = {"marker": marker, "ms": 3, "lw": 1.4, "color": colour}
            panel.plot(depth, values, style, **look, label=of.model)
    if metric in SHARES:
        panel.set_ylim(min(0.0, panel.get_ylim()[0]), 1.03)
    panel.set_title(metric.replace("_", " "), fontsize=9)
    panel.set_xlabel("layer", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.locator_params(axis="x", integer=True)
    panel.grid(color="#e6e6e6")
    panel.spines[["top", "right"]].set_visible(False)
