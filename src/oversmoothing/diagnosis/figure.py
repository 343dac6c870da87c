"""The figure of a report: one panel per metric over the layers."""

import csv
import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversmoothing.diagnosis.measures import LEGEND
from oversmoothing.errors import InputError, meant, reason_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from oversmoothing.diagnosis.report import Report

IN_A_ROW = 2  # panels, to be read on a phone
SHARES = ("cosine", "mean_share", "attention_similarity", "sample_cosine")  # shown from 0 to 1
WIDTH = 34  # letters in a line beside a panel
MARKED = 24  # largest number of layers that are drawn with markers
CURVES = Path(__file__).with_name("curves.csv")  # of examples/real_models.py --curves
COLOURS = ("#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#999933", "#882255")
DASHES = ((), (5, 1), (1, 1), (5, 1, 1, 1))  # of other models, which differ in grey as well
Curves = dict[str, list[dict[str, str]]]  # the layers of each model


def draw(
    report: "Report",
    path: str | Path | None,
    axes: list[Any] | None,
    metrics: Sequence[str],
    curves: bool | Iterable[str],
) -> tuple[Any, list[Any]]:
    """See ``Report.plot``, which gives the arguments."""
    if unknown := [name for name in metrics if name not in report.values]:
        raise InputError(
            f"metrics: {unknown[0]!r} was not measured; {meant(unknown[0], report.values)}"
        )
    if not metrics:
        raise InputError("metrics: got an empty list; name at least one metric")
    if axes is not None and len(axes) < len(metrics):
        raise InputError(f"ax: expected {len(metrics)} axes, one per metric, got {len(axes)}")
    beside = _chosen(curves)
    panels = _panels(len(metrics)) if axes is None else axes
    for panel, metric in zip(panels, metrics):
        _beside(panel, report, metric, beside)
        _panel(panel, report, metric)
        _limits(panel, report, metric)
        if beside:
            panel.set_xlabel("layer; other models: over relative depth", fontsize=7)
    figure = panels[0].figure
    if (report.reference or beside) and axes is None:
        lines = {line.get_label(): line for panel in panels for line in panel.get_lines()}
        columns = min(IN_A_ROW, len(panels))
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(beside) / columns))
        look = {"ncols": columns, "fontsize": 8, "frameon": False}
        figure.legend(lines.values(), lines, loc="outside lower center", **look)
    try:
        if path is not None:
            figure.savefig(path if hasattr(path, "write") else Path(path))
    except (OSError, TypeError, ValueError) as error:
        reason = reason_of(error)
        raise InputError(f"{path}: cannot be written ({reason}); choose another") from error
    return figure, panels


def axes_of(given: Any) -> list[Any]:
    """Returns one or several axes as a list. Raises InputError if they are none of matplotlib."""
    axes = [*(given if isinstance(given, list | tuple) else getattr(given, "flat", [given]))]
    if wrong := [one for one in axes if not hasattr(one, "get_figure")]:
        raise InputError(f"ax: expected axes of matplotlib, got {wrong[0]!r}")
    return axes


def listed(argument: str, given: Any) -> list[str]:
    """Returns one name or several as a list. Raises InputError, by argument, for other types."""
    if not isinstance(given, Iterable):
        raise InputError(f"{argument}: expected a name or several, got {given!r}")
    return [given] if isinstance(given, str) else [*given]


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


def _chosen(curves: bool | Iterable[str]) -> Curves:
    """Reads the reference curves of some models, or of all."""
    known: Curves = {}
    if curves is False:
        return known
    with CURVES.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            known.setdefault(line["model"], []).append(line)
    names = [*known] if curves is True else listed("curves", curves)
    for name in names:
        if name not in known:
            raise InputError(f"curves: {name!r} has no curve; {meant(name, known)}")
    return {name: known[name] for name in names}


def _beside(panel: "Axes", report: "Report", metric: str, curves: Curves) -> None:
    """Draws the curves of other models over relative depth; ranks as shares of their bound."""
    scale = max(report.bounds, default=1) if "rank" in metric else 1
    for i, (colour, (model, lines)) in enumerate(zip(COLOURS, curves.items())):
        if known := [line for line in lines if line.get(metric)]:
            depth = [1 + float(line["depth"]) * (len(report.layers) - 1) for line in known]
            values = [scale * float(line[metric]) for line in known]
            [line] = panel.plot(depth, values, color=colour, lw=1.1, label=model)
            line.set_dashes(DASHES[i % len(DASHES)])
            if scale > 1:
                panel.set_ylabel(f"other models: scaled to a maximum of {scale:g}", fontsize=7)


def _panel(panel: "Axes", report: "Report", metric: str) -> None:
    marker = "o" if len(report.layers) <= MARKED else ""
    depth = range(1, len(report.layers) + 1)
    for of, style, colour in ((report, "-", "#0072B2"), (report.reference, "--", "#777777")):
        if of is not None:
            values = [math.nan if value is None else value for value in of.values[metric]]
            look: dict[str, Any] = {"marker": marker, "ms": 3, "lw": 1.6, "color": colour}
            panel.plot(depth, values, style, **look, label=of.model)
    panel.set_title(metric.replace("_", " "), fontsize=9)
    panel.set_xlabel("layer", fontsize=8)
    meaning = LEGEND.get(metric, "").lstrip("↑↓ ").partition(";")[0]
    if not panel.get_ylabel():
        panel.set_ylabel(textwrap.fill(meaning, WIDTH), fontsize=7)
    panel.tick_params(labelsize=8)
    panel.locator_params(axis="x", integer=True)
    panel.grid(color="#e6e6e6")
    panel.spines[["top", "right"]].set_visible(False)


def _limits(panel: "Axes", report: "Report", metric: str) -> None:
    """Lets values begin at 0, so that small differences look small, and layers at 1."""
    low, high = panel.get_ylim()
    panel.set_ylim(min(0.0, low), 1.03 if metric in SHARES else high * (1.05 if low > 0 else 1))
    panel.set_xlim(0.5, len(report.layers) + 0.5)
