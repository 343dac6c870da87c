"""Draws oversmoothing by block and method, from the recorded runs of tables by depth.

oversmoothing figure curves
oversmoothing figure curves cls_depth
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.methods import shown, styles_of
from oversmoothing.lab.drawing.panels import LINES, extremes, from_zero, handles, panels
from oversmoothing.lab.drawing.tokens import mean_and_std
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.report.results import Planned, collect
from oversmoothing.lab.report.tables import load, select

TABLES = ["cls_pretrained", "cls_depth", "text_depth", "text_rates"]
ONE_RUN = ["cls_pretrained"]  # the columns of a row are metrics of one run
METRICS = {
    "cosine": "cosine of two tokens",
    "effective_rank": "effective rank",
    "attention_similarity": "similarity of map rows",
    "near_zero": "share of small\nsingular values",
}
SIZE, MARKED = 3.5, 6  # of a marker; markers in a line
MOMENTS = ("layers_after", "layers_before")  # trained; else as the network is


def main(argv: list[str]) -> int:
    """Writes ``<table>_curves.png`` and ``.csv`` of each table."""
    parser = figure_parser(__doc__)
    parser.add_argument("tables", nargs="*", default=TABLES, help=f"default: {' '.join(TABLES)}")
    options = parser.parse_args(argv)
    cells = {name: planned(name) for name in options.tables}  # raises before anything is drawn
    for name, own in cells.items():
        stem = options.target / "figures" / f"{name}_curves"
        print(*write_curves(own, stem, options.pdf), sep="\n")
    return 0


def planned(name: str, extra: Sequence[str] = ()) -> list[Planned]:
    """Returns one cell for each run of a table.

    Args:
        name: of the table.
        extra: further overrides, as in ``collect``.
    """
    cells = select(load(RESULTS / "expected"), name)
    runs = collect(cells, extra, RESULTS / f"{name}.jsonl")
    return list({(p.cell.row, name not in ONE_RUN and p.cell.column): p for p in runs}.values())


def write_curves(planned: Sequence[Planned], stem: Path, pdf: bool = False) -> list[Path]:
    """Writes ``stem``.png and ``stem``.csv and returns their paths.

    Args:
        planned: cells of a table, one for each run, with methods as rows and depths as columns.
        stem: path of the figure, without suffix.
        pdf: whether to save ``stem``.pdf as well.

    Raises:
        InputError: the table has no results yet.
    """
    rows = curve_rows(planned)
    if not rows:
        raise InputError(f"{stem.name}: nothing is measured yet; run its table first")
    paths = save(draw_curves(rows), stem, pdf)
    return [*paths, write_rows(rows, stem)]


def write_rows(rows: Sequence[dict[str, Any]], stem: Path) -> Path:
    """Writes ``stem``.csv, without the values of single seeds, and returns its path."""
    names = [name for name in rows[0] if name != "values"]
    data = ([row[name] for name in names] for row in rows)
    return write_csv(stem.with_name(f"{stem.name}.csv"), names, data)


def curve_rows(planned: Sequence[Planned]) -> list[dict[str, Any]]:
    """Returns mean, std (ddof = 1), number and values of seeds by measured cell, metric and block.

    Blocks without attention have no similarity of attention rows.
    """
    return [
        {"row": cell.cell.row, "column": cell.cell.column, "metric": metric, "block": block}
        | mean_and_std(values)
        | {"values": values}
        for cell in planned
        for metric in METRICS
        for block, values in enumerate(_by_block(cell, metric), start=1)
        if None not in values
    ]


def _by_block(planned: Planned, metric: str) -> list[tuple[float | None, ...]]:
    """Returns the values of all finished seeds, by block; none if they lack the metric."""
    seeds = planned.finished
    layers = [next((s[m] for m in MOMENTS if m in s), {}).get(metric, []) for s in seeds]
    return list(zip(*layers, strict=True))


@matplotlib.rc_context(LINES)
def draw_curves(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draws a line for each seed: metrics down and columns across; one column: metrics across."""
    columns = list(dict.fromkeys(row["column"] for row in rows))
    metrics = [m for m in METRICS if any(row["metric"] == m for row in rows)]
    styles = styles_of(row["row"] for row in rows)
    several = len(columns) > 1
    across = len(columns) if several else min(2, len(metrics))
    share = "row" if several else False  # columns compare with each other
    places = [(metric, column) for metric in metrics for column in columns]
    each = (5.0 / across, 1.6)
    figure, axes = panels(places, across, each=each, margin=(0.3, 1.0), sharey=share)
    ends = _ends(rows)
    for (metric, column), axis in axes.items():
        own = [row for row in rows if (row["metric"], row["column"]) == (metric, column)]
        for i, (name, style) in enumerate(styles.items()):
            _draw_seeds(axis, [row for row in own if row["row"] == name], style, i / len(styles))
        axis.xaxis.get_major_locator().set_params(integer=True, nbins=4)
        if not several or column == columns[0]:
            axis.set_ylabel(METRICS[metric])
        if several and metric == metrics[0]:
            title = column.replace("L=", "L = ").replace(", ", ",\nrate ")
            axis.set_title(f"{title}\n{rows[0]['row']}: {ends[column]:.2f}", fontsize=9)
        if metric == metrics[-1] or not several:
            axis.set_xlabel("block")
    for axis in axes.values():  # now that those of a row share their limits
        from_zero(axis)
    of, place = f"mean of the {METRICS[metrics[0]]}", "after the last block"
    many = f"Above each column: {of} {place}"
    figure.suptitle(many if several else extremes(f"{of}\n{place}", ends), fontsize=9)
    named = handles({shown(name): style | {"markersize": SIZE} for name, style in styles.items()})
    longest = max(map(len, styles))
    figure.legend(handles=named, loc="outside lower center", frameon=False,
                  ncols=max(1, int(5.3 / (0.6 + 0.07 * longest))))  # fmt: skip
    return figure


def _draw_seeds(
    axis: Axes, rows: Sequence[dict[str, Any]], style: dict[str, Any], shift: float
) -> None:
    """Draws the values of each seed by block; a mean would hide seeds that collapse.

    Args:
        shift: of the markers, in parts of their distance, so that those of methods lie apart.
    """
    blocks = [row["block"] for row in rows]
    each = math.ceil(len(blocks) / MARKED)
    marked = {"markevery": (int(shift * each), each), "markersize": SIZE}
    for values in zip(*(row["values"] for row in rows)):
        axis.plot(blocks, values, linewidth=1, alpha=0.85, **style, **marked)


def _ends(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns where the first metric ends: of the first row by column, or of one column's rows."""
    metric, first = rows[0]["metric"], rows[0]["row"]
    several = len({row["column"] for row in rows}) > 1
    own = [r for r in rows if r["metric"] == metric and (r["row"] == first or not several)]
    return {r["column"] if several else shown(r["row"]): r["mean"] for r in own}  # last blocks
