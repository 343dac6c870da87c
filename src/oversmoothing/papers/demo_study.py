"""Methods against depth, from runs that no paper has published: table and figure."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oversmoothing.report.depth_figures import COLOURS, MARKERS, STYLE
from oversmoothing.store.files import write_atomically

Study = dict[str, dict[int, dict[str, Any]]]  # method -> depth -> result


def rows(study: Study, metric: str = "test_accuracy") -> list[list[str]]:
    """Head and one line a method: mean ± std over seeds by depth."""
    depths = sorted({depth for of_method in study.values() for depth in of_method})
    head = ["", *(f"L={depth}" for depth in depths)]
    return [head, *([m, *(_shown(s.get(d), metric) for d in depths)] for m, s in study.items())]


def text(table: Sequence[Sequence[str]]) -> str:
    """A table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)) for line in table)


def draw(study: Study, title: str, path: Path) -> Path:
    """Accuracy against depth, and the effective rank after every layer of the deepest network."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.4), layout="constrained", dpi=150)
        accuracy, ranks = figure.subplots(1, 2)
        for i, (method, by_depth) in enumerate(study.items()):
            style = {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 4, "label": method}
            means = [_mean(result, "test_accuracy") for result in by_depth.values()]
            accuracy.plot(list(by_depth), means, **style)
            layers = _layers(by_depth[max(by_depth)])
            ranks.plot(range(1, len(layers) + 1), layers, **{**style, "markersize": 2})
        deepest = max(max(by_depth) for by_depth in study.values())
        _label(accuracy, f"{title}: accuracy", "layers of the network", "test accuracy, %")
        _label(
            ranks, f"Oversmoothing at work, {deepest} layers", "layer", "effective rank of nodes"
        )
        accuracy.set_xscale("log", base=2)
        accuracy.set_xticks(depths := sorted(next(iter(study.values()))), map(str, depths))
        accuracy.legend(frameon=False)
        write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:]))
    return path


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
    """Mean over seeds of the effective rank after every hidden layer."""
    seeds = [seed["layers"]["effective_rank"][:-1] for seed in result["seeds"].values()]
    return [statistics.fmean(values) for values in zip(*seeds)]


def _shown(result: dict[str, Any] | None, metric: str) -> str:
    if result is None:
        return "missing"
    values = _values(result, metric)
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"
