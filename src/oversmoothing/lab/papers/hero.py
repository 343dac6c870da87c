"""The figures of the first page: what collapses, what helps, and the verdicts by paper.

oversmoothing figure hero

``hero``: on the left random transformers of PyTorch, measured here in seconds; on the right a GCN
on Cora, from results/. ``verdicts``: the published numbers of each paper by their verdict.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from oversmoothing.diagnosis.diagnose import diagnose
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.methods import shown, styles_of
from oversmoothing.lab.drawing.panels import LINES, beside, depth_axis, draw_line, handles
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.report.tables import load
from oversmoothing.lab.report.verdict import Verdict
from oversmoothing.lab.store.files import read_csv

LAYERS, TOKENS, CHANNELS, SEEDS = 24, 50, 64, range(5)
ENCODERS = {"post-LN (default)": False, "pre-LN (norm_first)": True}
COLOURS = dict(zip(ENCODERS, ("#000000", "#CC79A7")))  # those of none and of residuals
MEASURES = {"cosine": "cosine", "effective_rank": "effective rank"}
METHODS = ("none", "PairNorm", "centered+LayerNorm", "residual", "LayerNorm+residual", "GCNII")
SPREAD = 0.1  # octaves between neighbouring methods
GRAPH, LARGEST = "Cora", 31.9  # % of the public test nodes that are in the largest class
VERDICTS = {  # of a cell -> name and colour in the figure
    Verdict.WITHIN: ("agree", "#009E73"),
    Verdict.OFF: ("differ", "#E69F00"),
    Verdict.CONTRADICTED: ("contradict the comparison", "#D55E00"),
    Verdict.NOT_RUN: ("not run", "#DDDDDD"),
}
NARROW = 6  # length of a bar that has no place for its number
NEEDS = {  # paper of which nothing is measured -> what is missing
    "External Attention": "not run: needs GPUs and all of ImageNet",
    "HEMNet": "not run: needs GPUs and all of VOC",
}
Row = tuple[str, int, int, float, float]  # encoder, seed, layer, cosine, effective rank


def main(argv: list[str]) -> int:
    """Writes ``hero`` and ``verdicts`` to ``figures``, each as .png and .csv."""
    options = figure_parser(__doc__).parse_args(argv)
    rows, counts, folder = encoder_rows(), verdicts(RESULTS), options.target / "figures"
    print(*save(draw(rows, graph_rows()), folder / "hero", options.pdf), sep="\n")
    print(write_csv(folder / "hero.csv", ("encoder", "seed", "layer", *MEASURES), rows))
    picture = draw_verdicts(counts, printed_twice(RESULTS))
    print(*save(picture, folder / "verdicts", options.pdf), sep="\n")
    names = [name for name, _ in VERDICTS.values()]
    lines = [(paper, *(of[kind] for kind in VERDICTS)) for paper, of in counts.items()]
    print(write_csv(folder / "verdicts.csv", ("paper", *names), lines))
    return 0


def encoder_rows() -> list[Row]:
    """Measures the encoder of README's example in both orders, with several seeds."""
    rows: list[Row] = []
    for name, pre in ENCODERS.items():
        for seed in SEEDS:
            torch.manual_seed(seed)
            layer = nn.TransformerEncoderLayer(
                CHANNELS, 4, 2 * CHANNELS, batch_first=True, norm_first=pre
            )
            encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            report = diagnose(encoder, torch.randn(4, TOKENS, CHANNELS), metrics=[*MEASURES])
            for i, values in enumerate(zip(*(report[name] for name in MEASURES)), start=1):
                rows.append((name, seed, i, *(float(f"{value:.5g}") for value in values)))
    return rows


def graph_rows() -> list[dict[str, str]]:
    """Reads the study of methods by depth: the methods that the figure shows, on one graph."""
    lines = read_csv(RESULTS / "tables/cures.csv")
    own = [r for r in lines if (r["graph"], r["network"]) == (GRAPH, "GCN")]
    depths = {r["layers"] for r in own if r["method"] == METHODS[-1]}
    return [r for r in own if r["method"] in METHODS and r["layers"] in depths]


@matplotlib.rc_context(LINES)
def draw(encoders: Sequence[Row], graphs: Sequence[dict[str, str]]) -> Figure:
    """Draws both measures of the transformers by layer, and accuracy by depth of the GCN."""
    figure = Figure(figsize=(5.0, 3.45), dpi=175, layout="constrained", facecolor="white")
    grid = figure.add_gridspec(2, 2, width_ratios=(1, 1.35))
    upper, lower = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
    for column, axis in enumerate((upper, lower), start=3):
        _draw_encoders(axis, encoders, column)
    ends = {name: _end(encoders, name, 4) for name in ENCODERS}
    post, pre = (f"{statistics.median(ends[name]):.0f}" for name in ENCODERS)
    title = f"Random transformer,\none layer copied {LAYERS} times:"
    title += f"\neffective rank {post} post-LN, {pre} pre-LN"
    upper.set_title(title, fontsize=8.5, loc="left", x=-0.3)
    upper.tick_params(labelbottom=False)
    upper.legend(frameon=False, fontsize=8, handlelength=1.2, loc="lower right",
                 borderaxespad=0, labelspacing=0.2)  # fmt: skip
    lower.set(xlabel="layer", ylim=(0, TOKENS))
    _draw_graphs(figure.add_subplot(grid[:, 1]), graphs)
    return figure


def _end(rows: Sequence[Row], name: str, column: int) -> list[float]:
    """Returns the values of all seeds after the last layer."""
    return [row[column] for row in rows if row[0] == name and row[2] == LAYERS]


def _draw_encoders(axis: Axes, rows: Sequence[Row], column: int) -> None:
    """Draws one line for each seed."""
    for name, colour in COLOURS.items():
        for seed in SEEDS:
            line = [row for row in rows if row[:2] == (name, seed)]
            x, y = ([row[i] for row in line] for i in (2, column))
            label = name if seed == 0 else None
            axis.plot(x, y, color=colour, linewidth=1, alpha=0.8, label=label)
    axis.set(ylabel=[*MEASURES.values()][column - 3], xticks=(1, 8, 16, LAYERS))
    axis.set_ylim(bottom=0)


def _draw_graphs(axis: Axes, rows: Sequence[dict[str, str]]) -> None:
    """Draws accuracy by depth for each method, and the share of the largest class."""
    depths = sorted({int(row["layers"]) for row in rows})
    last = {r["method"]: float(r["mean"]) for r in rows if int(r["layers"]) == depths[-1]}
    styles, named = styles_of(METHODS), {}
    for (method, style), shift in zip(styles.items(), beside(len(styles), SPREAD)):
        line = sorted((r for r in rows if r["method"] == method), key=lambda r: int(r["layers"]))
        means, stds = ([float(r[key]) for r in line] for key in ("mean", "std"))
        named[f"{shown(method)} {last[method]:.0f}".replace("+", " + ")] = style
        draw_line(axis, [d * shift for d in depths], means, stds, **style, markersize=4.5,
                  linewidth=1.4, elinewidth=0.9, capsize=2)  # fmt: skip
    axis.plot(depths[1:], [LARGEST] * len(depths[1:]), color="#666666", linestyle=":", linewidth=1)
    axis.annotate("largest class", (depths[1], LARGEST), (4, -9), fontsize=8,
                  textcoords="offset points", color="#666666")  # fmt: skip
    best = max(last, key=last.__getitem__)
    axis.set_title(
        f"GCN of {depths[-1]} layers on {GRAPH}:\n"
        f"{last['none']:.0f} % without a method, {best} {last[best]:.0f} %",
        fontsize=8.5,
        loc="left",
    )
    axis.set(xlabel="layers", ylabel="test accuracy, % (mean ± std)", ylim=(0, 90))
    depth_axis(axis, depths)
    axis.legend(handles=handles(named), frameon=False, fontsize=8, loc="lower left",
                bbox_to_anchor=(0, 0), title=f"with {depths[-1]} layers, %", title_fontsize=8,
                alignment="left", handlelength=1.4, labelspacing=0.25,
                borderaxespad=0.2)  # fmt: skip


def verdicts(results: Path) -> dict[str, Counter[str]]:
    """Counts the published numbers of every paper by verdict, as the page of the report does.

    Other readings of a paper and controls do not count.
    """
    found: dict[str, Counter[str]] = {}
    for paper, line in _published(results):
        verdict = line["verdict"]
        verdict = Verdict.NOT_RUN if verdict == Verdict.MISSING else verdict
        found.setdefault(paper, Counter())[verdict] += 1
    return found


def printed_twice(results: Path) -> int:
    """Counts the runs that measure a published number of two papers."""
    papers: dict[str, set[str]] = {}
    for paper, line in _published(results):
        if line["run"]:
            papers.setdefault(line["run"], set()).add(paper)
    return sum(len(of) > 1 for of in papers.values())


def _published(results: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields each published number that counts: its paper, and its line of the table's CSV."""
    lines: dict[str, list[dict[str, str]]] = {}
    for cell in load(results / "expected"):
        if cell.table not in lines:
            lines[cell.table] = [*read_csv(results / f"tables/{cell.table}.csv")][::-1]
        line = lines[cell.table].pop()  # a line for each cell, in the same order
        if cell.value is not None and not cell.reading and not cell.control:
            yield cell.about.source.partition(",")[0], line


@matplotlib.rc_context(LINES)
def draw_verdicts(counts: dict[str, Counter[str]], twice: int) -> Figure:
    """Draws one bar for each paper, as long as the number of its published values.

    Args:
        counts: of every paper, by verdict.
        twice: numbers that two papers print; the title says how many.
    """
    figure = Figure(figsize=(5.0, 1.95), dpi=175, layout="constrained", facecolor="white")
    axis = figure.add_subplot()
    papers = [*counts][::-1]
    narrow = {paper for paper in papers if max(counts[paper].values()) <= NARROW}
    left = [0] * len(papers)
    for kind, (name, colour) in VERDICTS.items():
        widths = [counts[paper][kind] for paper in papers]
        bars = axis.barh(papers, widths, left=left, color=colour, label=name, height=0.7)
        labels = [
            "" if paper in narrow else str(width or "") for paper, width in zip(papers, widths)
        ]
        axis.bar_label(bars, labels, label_type="center", fontsize=8)
        left = [a + b for a, b in zip(left, widths)]
    for paper, of in counts.items():
        few = ", ".join(f"{of[kind]} {name}" for kind, (name, _) in VERDICTS.items() if of[kind])
        axis.annotate(few if paper in narrow else NEEDS.get(paper, ""), (of.total(), paper), (4, 0),
                      fontsize=8, textcoords="offset points", va="center")  # fmt: skip
    own = sum((counts[paper] for paper in papers), Counter())
    measured = own.total() - own[Verdict.NOT_RUN]
    agree = own[Verdict.WITHIN]
    title = f"{own.total()} published numbers: {measured} measured, {agree} of these agree"
    title += f"\n({twice} that two papers print were measured once and count twice)"
    figure.suptitle(title, fontsize=8.5)
    axis.grid(visible=False)
    axis.tick_params(bottom=False, labelbottom=False, left=False)
    axis.spines[:].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8,
                  handlelength=1, columnspacing=1)  # fmt: skip
    return figure
