"""What a study of methods by depth found: tests, tables and figures.

Each cell is compared with its baseline over seeds or splits (paired t-tests). A method at one depth
is then compared over all graphs: a t-test of the mean differences, one for each graph, as in a
mixed model with a random effect of the graph. Each of the two families of tests is corrected for
its number (Benjamini, Hochberg, 1995).
"""

import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.stats import false_discovery_control, ttest_1samp

from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.methods import styles_of
from oversmoothing.lab.drawing.panels import LINES, depth_axis, draw_line, extremes, handles
from oversmoothing.lab.papers.cures_cells import (
    BASELINE,
    Found,
    Place,
    Record,
    Study,
    measure,
    seeds_of,
    today,
)  # fmt: skip
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.numbers import update
from oversmoothing.lab.report.verdict import Measured, paired
from oversmoothing.lab.store.files import write_text

RATE = 0.05  # of false discoveries
LEAST = 6  # graphs that a test over graphs needs: with 5, even a sign test has p > 0.05
SHOWN = (2, 8, 32, 64)  # depths of the summary
LINES_OF = ("none", "tuned", "LayerNorm", "centered+LayerNorm", "residual", "JKNet", "GCNII",
            "GPRGNN")  # fmt: skip
GAIN, STRONGEST = "PuOr", 65.0  # colours of the map, and the points of the darkest
LUMA = (0.299, 0.587, 0.114)  # brightness of red, green and blue
HEADING = "# Which method at which depth\n\n"
NO_BREAK = "\u00a0"
HEAD = ("graph", "network", "layers", "method", "n", "mean", "std", "difference", "p",
        "p_adjusted", "candidate", "values", "seeds")  # fmt: skip


class Comparison(NamedTuple):
    """The comparison of a method with the baseline on the same graph, network and depth.

    Args:
        difference: of the mean test accuracies, in points.
        p: two-sided, of a paired t-test over seeds; NaN with fewer than two of them.
        adjusted: p corrected for the number of all comparisons (Benjamini and Hochberg).
    """

    difference: float
    p: float
    adjusted: float

    @property
    def significant(self) -> bool:
        return self.adjusted < RATE


class Pooled(NamedTuple):
    """The comparison of a method with the baseline at one depth, over graphs.

    Args:
        difference: mean over graphs of the differences of mean accuracies, in points.
        better: number of graphs on which the method is the more accurate.
        graphs: number of graphs.
        p: two-sided, of a t-test of the graphs' differences; NaN with fewer than six graphs.
        adjusted: p corrected for the number of methods and depths (Benjamini and Hochberg).
    """

    difference: float
    better: int
    graphs: int
    p: float
    adjusted: float


Compared = Mapping[Place, Comparison]
Key = TypeVar("Key", bound=Hashable)


def compare(found: Found) -> Compared:
    """Compares every measured cell with its baseline if that is also measured."""
    p, difference = {}, {}
    for place, (_, own) in found.items():
        base = found.get(place._replace(method=BASELINE))
        if base and place.method != BASELINE:
            values = [dict(zip(of.seeds, of.values)) for of in (own, base[1])]
            p[place], difference[place] = paired(*values).p, own.mean - base[1].mean
    adjusted = _corrected(p)
    return {c: Comparison(difference[c], p[c], adjusted[c]) for c in p}


def pool(compared: Compared, network: str) -> dict[tuple[str, int], Pooled]:
    """Compares each method at each depth over the graphs that are measured in a network."""
    found: dict[tuple[str, int], list[float]] = {}
    for place, of in compared.items():
        if place.network == network:
            found.setdefault((place.method, place.layers), []).append(of.difference)
    p = {key: _over_graphs(differences) for key, differences in found.items()}
    adjusted = _corrected(p)
    return {
        key: Pooled(statistics.fmean(of), sum(d > 0 for d in of), len(of), p[key], adjusted[key])
        for key, of in found.items()
    }


def _over_graphs(differences: Sequence[float]) -> float:
    """Returns p of a t-test against 0; NaN for too few graphs or equal differences."""
    if len(differences) < LEAST or len({*differences}) == 1:
        return math.nan
    return float(ttest_1samp(differences, 0).pvalue)


def _corrected(p: Mapping[Key, float]) -> dict[Key, float]:
    """Corrects p for the number of tests that have one; the others stay NaN."""
    known = [key for key, value in p.items() if math.isfinite(value)]
    adjusted = false_discovery_control([p[key] for key in known])
    return dict.fromkeys(p, math.nan) | dict(zip(known, map(float, adjusted)))


def write_all(whole: Study, records: Sequence[Record], results: Path, pdf: bool) -> list[Path]:
    """Writes all files and returns their paths."""
    found = measure(whole, records)
    compared = compare(found)
    tables = results / "tables"
    paths = [write_csv(tables / "cures.csv", HEAD, _rows(whole, found, compared))]
    text = summary(whole, found, compared) + _earlier(whole, records, found)
    write_text(tables / "cures.md", f"{HEADING}{text}\n\n{_every_graph(whole, found, compared)}")
    paths.append(tables / "cures.md")
    if compared:
        paths += save(draw(whole, compared), results / "figures" / "cures", pdf)
        paths += save(draw_depths(whole, found), results / "figures" / "cures_depth", pdf)
    return paths + update(results)


def asked(whole: Study, wanted: Sequence[Place], found: Found) -> str:
    """Returns the cells that a command asks for: of a part each cell, of the study a summary."""
    compared = compare(found)
    if len(wanted) == len(whole):
        return summary(whole, found, compared)
    how = f"Test accuracy, %, mean ± std over seeds; ↑ ↓: significantly other than {BASELINE}"
    return "\n\n".join([*_tables(wanted, found, compared), f"{how}."])


def gains(whole: Study, compared: Compared) -> dict[str, dict[str, dict[int, list[Comparison]]]]:
    """Returns the comparisons in the first network by group of graphs, method and depth."""
    network = next(iter(whole)).network
    own = [place for place in compared if place.network == network]
    depths = [depth for depth in SHOWN if any(place.layers == depth for place in own)]
    groups = {place.graph: cell.about.blocks[place.graph].group for place, cell in whole.items()}
    methods = dict.fromkeys(place.method for place in whole if place.method != BASELINE)
    planned = {(groups[place.graph], place.layers) for place in whole if place.network == network}
    found = {
        group: {m: {depth: [] for depth in depths if (group, depth) in planned} for m in methods}
        for group in dict.fromkeys(groups.values())
    }
    for place in own:
        if place.layers in depths:
            found[groups[place.graph]][place.method][place.layers].append(compared[place])
    return found


def summary(whole: Study, found: Found, compared: Compared) -> str:
    """Returns what each method adds in the first network, by depth: over all graphs, by group.

    Methods without a measured cell are named at the end.
    """
    network = next(iter(whole)).network
    groups = {place.graph: cell.about.blocks[place.graph].group for place, cell in whole.items()}
    parts = [_over_all(dict.fromkeys(place.method for place in whole), pool(compared, network))]
    for group, by_method in gains(whole, compared).items():
        depths = [*next(iter(by_method.values()), ())]
        plain = [
            ", ".join(
                f"{place.graph} {measured.mean:.1f}"
                for place, (_, measured) in found.items()
                if place[1:] == (network, depth, BASELINE) and groups[place.graph] == group
            )
            for depth in depths
        ]
        rows = [[f"{BASELINE}: accuracy", *(text or "missing" for text in plain)]]
        rows += [[m, *map(_effect, of.values())] for m, of in by_method.items() if any(of.values())]
        parts.append(table([f"{group} graphs", *(f"L = {d}" for d in depths)], rows))
    return "\n\n".join([part for part in parts if part] + [_what_is_missing(whole, found)])


def _over_all(methods: Iterable[str], pooled: Mapping[tuple[str, int], Pooled]) -> str:
    """Returns the table over graphs; empty if no depth has enough of them."""
    depths = sorted({depth for (_, depth), of in pooled.items() if of.graphs >= LEAST})
    methods = [m for m in methods if any((m, depth) in pooled for depth in depths)]
    rows = [[m, *(_pooled(pooled.get((m, depth))) for depth in depths)] for m in methods]
    return table(["all graphs", *(f"L = {depth}" for depth in depths)], rows) if depths else ""


def _pooled(own: Pooled | None) -> str:
    if own is None:
        return "missing"
    text = _points(own.difference)
    text = f"**{text}**" if own.adjusted < RATE else text
    p = "" if math.isnan(own.adjusted) else f", p = {own.adjusted:.2g}"
    return f"{text} ({own.better} of {own.graphs}{p})".replace(" ", NO_BREAK)


def _what_is_missing(whole: Study, found: Found) -> str:
    done, every = len(found), len(whole)
    plan = f"; `make cures PLAN=1` lists the {every - done} others" if done < every else ""
    methods = dict.fromkeys(place.method for place in whole)
    none = [method for method in methods if not any(place.method == method for place in found)]
    text = f"{done} of {every} cells are measured{plan}."
    return f"{text} Not measured on any graph: {', '.join(none)}." if none else text


def _effect(compared: Sequence[Comparison]) -> str:
    """Returns the mean difference over graphs, and the counts of significant differences."""
    if not compared:
        return "missing"
    better = sum(c.significant and c.difference > 0 for c in compared)
    worse = sum(c.significant and c.difference < 0 for c in compared)
    text = _points(statistics.fmean(c.difference for c in compared))
    counted = f"({better} ↑ {worse} ↓ of {len(compared)})".replace(" ", NO_BREAK)
    return f"{text} {counted}"


def _points(mean: float) -> str:
    return f"{mean:+.1f}".replace("-", "−") if abs(mean) >= 0.05 else "0.0"


def _earlier(whole: Study, records: Sequence[Record], found: Found) -> str:
    """Says how many of the measured cells are of an earlier version."""
    shown = [r for r in records if r.place in found and r.candidate == found[r.place][0]]
    cells = {record.place for record in set(shown) - set(today(whole, shown))}
    if not cells:
        return ""
    number = "All" if len(cells) == len(found) else f"{len(cells)} of the"
    return (
        f" {number} measured cells were run by an earlier version of this package, "
        "which drew other random numbers for the same seeds; `make cures EARLIER=1` measures them "
        "again."
    )


def _every_graph(whole: Study, found: Found, compared: Compared) -> str:
    """Returns a table of methods × depths for each network and graph, with missing commands."""
    n = len(seeds_of(next(iter(whole.values()))))
    parts = [
        f"## Every graph\n\nTest accuracy, %: mean ± std (ddof = 1), n = {n}. "
        f"↑ ↓: better or worse than {BASELINE}, paired t-test at a false discovery rate of 5 % "
        "over all comparisons of this page."
    ]
    measured = {(place.network, place.graph, place.method) for place in found}
    own = [place for place in whole if (place.network, place.graph, place.method) in measured]
    parts += _tables(own, found, compared)
    missing = [place.command() for place in whole if place not in found]
    if missing:
        parts.append("<details><summary>Commands of the missing cells</summary>\n")
        parts.append("```\n" + "\n".join(missing) + "\n```\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _tables(places: Collection[Place], found: Found, compared: Compared) -> list[str]:
    """Returns a table of methods × depths for each network and graph."""
    networks = [*dict.fromkeys(place.network for place in places)]
    of_graphs: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(places, key=lambda place: networks.index(place.network)):
        of_graphs.setdefault((place.network, place.graph), []).append(place)
    parts = []
    for names, own in of_graphs.items():
        rows: dict[str, list[str]] = {}
        for place in own:
            rows.setdefault(place.method, []).append(_shown(place, found, compared))
        head = [", ".join(names), *dict.fromkeys(f"L = {place.layers}" for place in own)]
        parts.append(table(head, [[method, *texts] for method, texts in rows.items()]))
    return parts


def _shown(place: Place, found: Found, compared: Compared) -> str:
    if place not in found:
        return "missing"
    _, own = found[place]
    text = f"{own.mean:.1f} ± {own.std:.1f}"
    comparison = compared.get(place)
    if comparison is None or not comparison.significant:
        return text
    return f"{text} {'↑' if comparison.difference > 0 else '↓'}"


def _rows(whole: Study, found: Found, compared: Compared) -> list[list[object]]:
    rows = []
    for place in whole:
        if place in found:
            (candidate, own), beside = found[place], compared.get(place)
            numbers = [f"{x:.3g}" for x in beside] if beside else [""] * 3
            means = [f"{own.mean:.2f}", f"{own.std:.2f}"]
            each = [" ".join(map(str, of)) for of in (own.values, own.seeds)]
            rows.append([*place, own.n, *means, *numbers, candidate, *each])
    return rows


@matplotlib.rc_context(LINES)
def draw_depths(whole: Study, found: Found) -> Figure:
    """Draws accuracy by depth in the first network: a panel for each graph, a line for a method.

    A dotted line shows the shallowest network without a method. Graphs with a single depth are left
    out.
    """
    network = next(iter(whole)).network
    places = [place for place in whole if place in found and place.network == network]
    depths = {graph: {p.layers for p in places if p.graph == graph} for graph, *_ in places}
    graphs = [graph for graph, own in depths.items() if len(own) > 1]
    columns = max(1, min(3, len(graphs)))
    rows = max(1, math.ceil(len(graphs) / columns))
    figure = Figure(figsize=(5.2, 0.5 + 1.6 * rows), layout="constrained")
    axes = [*figure.subplots(rows, columns, squeeze=False).flat]
    for axis, graph in zip(axes, graphs):
        _lines_of_graph(axis, {p: found[p][1] for p in places if p.graph == graph})
        axis.set_title(graph, fontsize=9)
    for axis in axes[max(0, len(graphs) - columns) : len(graphs)]:
        axis.set_xlabel("layers")
    for axis in axes[len(graphs) :]:
        axis.set_axis_off()
    figure.supylabel("test accuracy, %" + ", or ROC AUC" * _has_auc(whole), fontsize=8)
    figure.legend(handles=handles(styles_of(LINES_OF)), loc="outside lower center", ncols=4,
                  frameon=False, fontsize=8)  # fmt: skip
    return figure


def _has_auc(whole: Study) -> bool:
    return any("roc_auc" in (cell.metric or "") for cell in whole.values())


def _lines_of_graph(axis: Axes, found: Mapping[Place, Measured]) -> None:
    """Draws a line for each method, in grey for those that the legend does not name."""
    styles = styles_of(LINES_OF)
    plain = {place.layers: of.mean for place, of in found.items() if place.method == BASELINE}
    axis.axhline(plain[min(plain)], color="k", linestyle=":", linewidth=0.8)
    for method in sorted({place.method for place in found}, key=lambda name: name in styles):
        own = sorted((place.layers, of) for place, of in found.items() if place.method == method)
        style = styles.get(method, {"color": "0.8"})
        size = {"markersize": 3, "linewidth": 1.2 if method in styles else 0.7, "elinewidth": 0.6}
        depths, means = [d for d, _ in own], [of.mean for _, of in own]
        spread = [of.std if method in styles else None for _, of in own]
        draw_line(axis, depths, means, spread, **style, **size)
    depth_axis(axis, {place.layers for place in found})


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
    figure.supxlabel("layers, and number of graphs; *: fewer graphs; hatched: missing", fontsize=8)
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
            text = _points(mean) + "*" * (len(cells) < most[depth])
            dark = np.dot(colour[:3], LUMA) < 0.5
            axis.text(x, y, text, ha="center", va="center", color="w" if dark else "k", fontsize=8)
    axis.set_xticks(range(len(depths)), [f"{d}\n{most[d]}" for d in depths])
    axis.tick_params(bottom=False, left=False)
    axis.spines[:].set_visible(False)


def _finding(found: Mapping[str, Mapping[str, Mapping[int, Sequence[Comparison]]]]) -> str:
    """Says which method gains most and least at the greatest depth, in the first group."""
    group, by_method = next(iter(found.items()))
    last = {
        method: statistics.fmean(cell.difference for cell in [*of.values()][-1])
        for method, of in by_method.items()
        if of and [*of.values()][-1]
    }
    depths = [*next(iter(by_method.values()))]
    if not last:
        return "gain over no method, in points"
    return extremes(f"Points gained, {depths[-1]} layers, {group}", last, 1)
