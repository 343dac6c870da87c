"""Figures of the study of methods: accuracy by depth on each graph, and what each method adds."""

import statistics
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MultipleLocator

from oversmoothing.lab.drawing.methods import styles_of
from oversmoothing.lab.drawing.panels import (
    LINES,
    beside,
    depth_axis,
    draw_line,
    extremes,
    handles,
    panels,
)
from oversmoothing.lab.papers.cures_cells import BASELINE, Found, Place, Study
from oversmoothing.lab.papers.cures_page import Compared, Comparison, gains, points
from oversmoothing.lab.report.verdict import Measured

LINES_OF = ("none", "tuned", "LayerNorm", "PairNorm", "centered+LayerNorm", "LayerNorm+residual",
            "residual", "GraphCON", "JKNet", "GCNII", "GPRGNN")  # fmt: skip
BY_ERROR = (lambda y: -np.log(np.maximum(100 - y, 1)), lambda z: 100 - np.exp(-z))  # of an axis
SPREAD = 0.08  # octaves between neighbouring methods
GAIN, STRONGEST = "PuOr", 65.0  # colours of the map, and the points of the darkest
LUMA = (0.299, 0.587, 0.114)  # brightness of red, green and blue


@matplotlib.rc_context(LINES)
def draw_depths(whole: Study, found: Found) -> Figure:
    """Draws accuracy by depth in the first network: a panel for each graph, a line for a method.

    A dotted line shows the shallowest network without a method. Graphs with a single depth are left
    out. Where methods fail, the axis is logarithmic in the error, so that the best lie apart.
    """
    network = next(iter(whole)).network
    places = [place for place in whole if place in found and place.network == network]
    depths = {graph: {p.layers for p in places if p.graph == graph} for graph, *_ in places}
    graphs = [graph for graph, own in depths.items() if len(own) > 1]
    figure, axes = panels(graphs, 2, each=(2.6, 2.2), margin=(0.0, 0.9), least=5.2)
    for graph, axis in axes.items():
        own = {place: found[place][1] for place in places if place.graph == graph}
        _lines_of_graph(axis, own)
        auc = any("roc_auc" in (whole[place].metric or "") for place in own)
        axis.set_title(f"{graph}, {_best(own)}", fontsize=8)
        if graph in graphs[-2:]:
            axis.set_xlabel("layers")
        if auc or axis.get_subplotspec().is_first_col():
            axis.set_ylabel("test ROC AUC, %" if auc else "test accuracy, %")
    figure.legend(handles=handles(styles_of(LINES_OF)), loc="outside lower center", ncols=4,
                  frameon=False, fontsize=7.5, handlelength=1.3, columnspacing=0.8)  # fmt: skip
    return figure


def _best(found: Mapping[Place, Measured]) -> str:
    """Says which two methods are the best at the greatest depth, also of those in grey."""
    deepest = max(place.layers for place in found)
    last = {place.method: of.mean for place, of in found.items() if place.layers == deepest}
    best = sorted(last, key=last.__getitem__, reverse=True)[:2]
    return f"best with {deepest} layers:\n" + ", ".join(
        f"{method} {last[method]:.1f}" for method in best
    )


def _lines_of_graph(axis: Axes, found: Mapping[Place, Measured]) -> None:
    """Draws a line for each method, in grey for those that the legend does not name."""
    styles, shifts = styles_of(LINES_OF), dict(zip(LINES_OF, beside(len(LINES_OF), SPREAD)))
    plain = {place.layers: of.mean for place, of in found.items() if place.method == BASELINE}
    if plain:
        axis.axhline(plain[min(plain)], color="k", linestyle=":", linewidth=1, zorder=5)
    methods = dict.fromkeys(place.method for place in found)
    for method in sorted(methods, key=lambda name: name in styles):
        own = sorted((place.layers, of) for place, of in found.items() if place.method == method)
        style = styles.get(method, {"color": "0.8"})
        size = {"markersize": 3, "linewidth": 1.2 if method in styles else 0.7, "elinewidth": 0.6}
        depths, means = [d * shifts.get(method, 1) for d, _ in own], [of.mean for _, of in own]
        spread = [of.std if method in styles else None for _, of in own]
        draw_line(axis, depths, means, spread, **style, **size)
    depth_axis(axis, {place.layers for place in found})
    means = [of.mean for of in found.values()]
    if min(means) < max(means) / 2:  # those that fail would press the best ones together
        axis.set_yscale("function", functions=BY_ERROR)
        axis.yaxis.set_major_locator(MultipleLocator(10))


@matplotlib.rc_context(LINES | {"axes.grid": False})
def draw(whole: Study, compared: Compared) -> Figure:
    """Draws the mean gain of each method by depth, in points: a map for each group of graphs."""
    found = gains(whole, compared)
    methods = [*next(iter(found.values()))]
    figure = Figure(figsize=(5.2, 1.2 + 0.24 * len(methods)), layout="constrained")
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False).flat
    for (group, by_method), axis in zip(found.items(), axes):
        _map(axis, by_method)
        axis.set_title(f"{group} graphs", fontsize=9)
    axes[0].set_yticks(range(len(methods)), [method.replace("+", " + ") for method in methods])
    figure.suptitle(_finding(found), fontsize=9)
    uneven = any(
        len({len(of[depth]) for of in by_method.values()}) > 1
        for by_method in found.values()
        for depth in next(iter(by_method.values()))
    )
    legend = "; *: fewer graphs; hatched: missing" * uneven
    cells = f"in the cells: test accuracy less that without a method, in points{legend}"
    figure.supxlabel(cells, fontsize=8)
    return figure


def _map(axis: Axes, by_method: Mapping[str, Mapping[int, Sequence[Comparison]]]) -> None:
    """Draws a cell for each method and depth, with the mean difference from no method."""
    depths = [*next(iter(by_method.values()))]
    most = {depth: max(len(of[depth]) for of in by_method.values()) for depth in depths}
    axis.set(xlim=(-0.5, len(depths) - 0.5), ylim=(len(by_method) - 0.5, -0.5))
    for y, of in enumerate(by_method.values()):
        for x, (depth, cells) in enumerate(of.items()):
            corner = (x - 0.5, y - 0.5)
            if not cells:
                axis.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="////", color="0.8", lw=0))
                continue
            mean = statistics.fmean(cell.difference for cell in cells)
            colour = colormaps[GAIN](0.5 + mean / (2 * STRONGEST))
            axis.add_patch(Rectangle(corner, 1, 1, color=colour, lw=0))
            text = points(mean) + "*" * (len(cells) < most[depth])
            dark = np.dot(colour[:3], LUMA) < 0.6
            axis.text(x, y, text, ha="center", va="center", color="w" if dark else "k", fontsize=8)
    below = (f"L = {d}\n{n} graph{'s' * (n > 1)}" for d, n in most.items())
    axis.set_xticks(range(len(depths)), below, fontsize=8)
    axis.tick_params(bottom=False, left=False)
    axis.spines[:].set_visible(False)


def _finding(found: Mapping[str, Mapping[str, Mapping[int, Sequence[Comparison]]]]) -> str:
    """Says which method gains most and least at the greatest depth, in the first group.

    Methods that are measured on fewer graphs are left out, since their means cannot be compared.
    """
    group, by_method = next(iter(found.items()))
    deepest = max(next(iter(by_method.values())), default=0)
    last = {method: of[deepest] for method, of in by_method.items() if of.get(deepest)}
    if not last:
        return "gain over no method, in points"
    number = max(map(len, last.values()))
    gained = {
        method: statistics.fmean(cell.difference for cell in cells)
        for method, cells in last.items()
        if len(cells) == number
    }
    graphs = f"{number} {group} graph{'s' * (number > 1)}"
    return extremes(f"Points gained with {deepest} layers\n{graphs}", gained, 1)
