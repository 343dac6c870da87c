"""Draws the figure of the study: test accuracy by depth, with one panel per graph."""

from collections.abc import Mapping

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oversmoothing.lab.drawing.style import COLOURS, LINES, MARKERS
from oversmoothing.lab.papers.cures.records import Measured
from oversmoothing.lab.papers.cures.study import Cell, Study

COLUMNS = 3
SPREAD = 0.02  # octaves between neighbouring methods, so that their error bars do not overlap


@matplotlib.rc_context(LINES)
def draw(study: Study, measured: Mapping[Cell, Measured], network: str = "GCN") -> Figure:
    """Draws the measured cells of a network on the graphs with more than one depth."""
    own = {cell: m for cell, m in measured.items() if cell.network == network}
    depths = {graph: {c.layers for c in own if c.graph == graph} for graph in study.graphs}
    graphs = [graph for graph, found in depths.items() if len(found) > 1]
    rows = max(1, -(-len(graphs) // COLUMNS))
    figure = Figure(figsize=(3.0 * COLUMNS, 2.3 * rows + 1.1), layout="constrained")
    axes = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for axis, graph in zip(axes, graphs):
        _panel(axis, study, {c: m for c, m in own.items() if c.graph == graph}, graph)
    for axis in axes[len(graphs) :]:
        axis.axis("off")
    found = (zip(*reversed(axis.get_legend_handles_labels())) for axis in figure.axes)
    lines = {label: line for each in found for label, line in each}
    ordered = [lines[method] for method in study.methods if method in lines]
    figure.legend(handles=ordered, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _panel(axis: Axes, study: Study, measured: Mapping[Cell, Measured], graph: str) -> None:
    depths = sorted({layers for of in study.networks.values() for layers in of["layers"]})
    for number, method in enumerate(study.methods):
        line = sorted((c.layers, m.mean, m.std) for c, m in measured.items() if c.method == method)
        if line:
            shift = 2 ** (SPREAD * (number - len(study.methods) / 2))
            axis.errorbar(
                [layers * shift for layers, *_ in line],
                [mean for _, mean, _ in line],
                [std for *_, std in line],
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                linestyle="--" if number >= len(COLOURS) else "-",
                markersize=3.5,
                linewidth=1.2,
                elinewidth=0.7,
                capsize=1.5,
                label=method,
            )
    axis.set_xscale("log", base=2)
    axis.set_xticks(depths, [str(depth) for depth in depths])
    axis.set_title(graph, fontsize=9)
    axis.set(xlabel="layers", ylabel="test accuracy, %")
