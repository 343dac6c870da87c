"""Methods by depth, as a table and a figure."""

import statistics
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oversmoothing.drawing.style import COLOURS, LINES, MARKERS

Study = dict[str, dict[int, dict[str, Any]]]  # method -> depth -> result


def rows(study: Study, metric: str = "test_accuracy") -> list[list[str]]:
    """Returns a head, and for each method mean ± std over seeds by depth."""
    depths = sorted({depth for of_method in study.values() for depth in of_method})
    head = ["", *(f"L={depth}" for depth in depths)]
    return [head, *([m, *(_shown(s.get(d), metric) for d in depths)] for m, s in study.items())]


def text(table: Sequence[Sequence[str]]) -> str:
    """Returns a table as aligned text."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)) for line in table)


@matplotlib.rc_context(LINES)
def draw(study: Study, title: str) -> Figure:
    """Draws accuracy by depth, and the effective rank by layer of the deepest network."""
    figure = Figure(figsize=(8.6, 3.4), layout="constrained")
    accuracy, ranks = figure.subplots(1, 2)
    for i, (method, by_depth) in enumerate(study.items()):
        style = {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 4, "label": method}
        means = [_mean(result, "test_accuracy") for result in by_depth.values()]
        accuracy.plot(list(by_depth), means, **style)
        layers = _layers(by_depth[max(by_depth)])
        ranks.plot(range(1, len(layers) + 1), layers, **{**style, "markersize": 2})
    deepest = max(max(by_depth) for by_depth in study.values())
    _label(accuracy, f"{title}: accuracy", "layers of the network", "test accuracy, %")
    _label(ranks, f"Oversmoothing at work, {deepest} layers", "layer", "effective rank of nodes")
    accuracy.set_xscale("log", base=2)
    accuracy.set_xticks(depths := sorted(next(iter(study.values()))), map(str, depths))
    accuracy.legend(frameon=False)
    return figure


def _label(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_ylim(bottom=0)


def _values(result: dict[str, Any], metric: str) -> list[float]:
    return [seed[metric] for seed in result["seeds"].values()]


def _mean(result: dict[str, Any], metric: str) -> float:
    return statistics.fmean(_values(result, metric))


def _layers(result: dict[str, Any]) -> list[float]:
    """Returns the mean over seeds of the effective rank after each hidden layer."""
    seeds = [seed["layers"]["effective_rank"][:-1] for seed in result["seeds"].values()]
    return [statistics.fmean(values) for values in zip(*seeds)]


def _shown(result: dict[str, Any] | None, metric: str) -> str:
    if result is None:
        return "missing"
    values = _values(result, metric)
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"
