"""The figure of a report: one panel per metric over the layers."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversmoothing.errors import InputError, meant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from oversmoothing.diagnosis.report import Report

IN_A_ROW = 3  # panels
SHARES = ("cosine", "mean_share", "attention_similarity", "sample_cosine")  # shown from 0 to 1
MARKED = 24  # largest number of layers that are drawn with markers


def draw(
    report: "Report", path: str | Path | None, axes: list[Any] | None, metrics: Sequence[str]
) -> tuple[Any, list[Any]]:
    """See ``Report.plot``, which gives the arguments."""
    if unknown := [name for name in metrics if name not in report.values]:
        raise InputError(
            f"metrics: {unknown[0]!r} was not measured; {meant(unknown[0], report.values)}"
        )
    if axes is not None and len(axes) < len(metrics):
        raise InputError(f"ax: expected {len(metrics)} axes, one per metric, got {len(axes)}")
    panels = _panels(len(metrics)) if axes is None else axes
    for panel, metric in zip(panels, metrics):
        _panel(panel, report, metric)
    figure = panels[0].figure
    if report.reference and axes is None:
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    try:
        if path is not None:
            figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written ({error}); choose another") from error
    return figure, panels


def _panels(number: int) -> list[Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(f"plot: needs matplotlib ({error}); pip install matplotlib") from error
    columns = min(IN_A_ROW, number)
    rows = math.ceil(number / columns)
    figure = Figure((3.2 * columns, 2.4 * rows + 0.3), dpi=150, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[number:]:
        panel.remove()
    return panels[:number]


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
