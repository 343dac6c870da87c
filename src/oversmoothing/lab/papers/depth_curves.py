"""Draws oversmoothing by block and method, from the recorded runs of tables by depth.

oversmoothing figure curves
oversmoothing figure curves cls_depth
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from oversmoothing.errors import InputError, complain
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.panels import LINES, colours_of, handles, panels
from oversmoothing.lab.drawing.tokens import draw_blocks, mean_and_std
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.report.results import Planned, collect
from oversmoothing.lab.report.tables import load, select

TABLES = ["cls_pretrained", "cls_depth", "text_depth", "text_rates"]
ONE_RUN = ["cls_pretrained"]  # the columns of a row are metrics of one run
METRICS = {
    "cosine": "mean cosine of two tokens",
    "effective_rank": "effective rank",
    "attention_similarity": "similarity of attention rows",
    "near_zero": "share of small singular values",
}
MOMENTS = ("layers_after", "layers_before")  # trained; else as the network is


def main(argv: list[str]) -> int:
    """Writes ``<table>_curves.png`` and ``.csv`` of each table; returns 1 if one has no results."""
    parser = figure_parser(__name__, __doc__)
    parser.add_argument("tables", nargs="*", default=TABLES, help=f"default: {' '.join(TABLES)}")
    options = parser.parse_args(argv)
    cells = {name: planned(name) for name in options.tables}  # raises before anything is drawn
    failed = False
    for name, own in cells.items():
        try:
            stem, titles = options.target / "figures" / f"{name}_curves", name not in ONE_RUN
            print(*write_curves(own, stem, titles, options.pdf), sep="\n")
        except InputError as error:
            complain(*error.lines)
            failed = True
    return int(failed)


def planned(name: str, extra: Sequence[str] = ()) -> list[Planned]:
    """Returns one cell for each run of a table.

    Args:
        name: of the table.
        extra: further overrides, as in ``collect``.
    """
    cells = select(load(RESULTS / "expected"), name)
    runs = collect(cells, extra, RESULTS / f"{name}.jsonl")
    return list({(p.cell.row, name not in ONE_RUN and p.cell.column): p for p in runs}.values())


def write_curves(
    planned: Sequence[Planned], stem: Path, titles: bool = True, pdf: bool = False
) -> list[Path]:
    """Writes ``stem``.png and ``stem``.csv and returns their paths.

    Args:
        planned: cells of a table, one for each run, with methods as rows and depths as columns.
        stem: path of the figure, without suffix.
        titles: whether to show the names of the columns.
        pdf: whether to save ``stem``.pdf, too.

    Raises:
        InputError: the table has no results yet.
    """
    rows = curve_rows(planned)
    if not rows:
        raise InputError(f"{stem.name}: nothing is measured yet; run its table first")
    paths = save(draw_curves(rows, titles), stem, pdf)
    data = (row.values() for row in rows)
    return [*paths, write_csv(stem.with_name(f"{stem.name}.csv"), rows[0], data)]


def curve_rows(planned: Sequence[Planned]) -> list[dict[str, Any]]:
    """Returns mean, std (ddof = 1) and number of seeds for each measured cell, metric and block.

    Blocks without attention have no similarity of attention rows.
    """
    return [
        {"row": cell.cell.row, "column": cell.cell.column, "metric": metric, "block": block}
        | mean_and_std(values)
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
def draw_curves(rows: Sequence[dict[str, Any]], titles: bool) -> Figure:
    """Draws metrics down and columns of the table across; one column: metrics across."""
    columns = list(dict.fromkeys(row["column"] for row in rows))
    metrics = [m for m in METRICS if any(row["metric"] == m for row in rows)]
    colours = colours_of(row["row"] for row in rows)
    across = len(columns) if len(columns) > 1 else len(metrics)
    share = "row" if len(columns) > 1 else False  # columns compare with each other
    places = [(metric, column) for metric in metrics for column in columns]
    figure, axes = panels(places, across, each=(2.5, 2.0), margin=(0.6, 0.7), sharey=share)
    for (metric, column), axis in axes.items():
        for name, colour in colours.items():
            place = (metric, column, name)
            line = [r for r in rows if (r["metric"], r["column"], r["row"]) == place]
            draw_blocks(axis, line, first=1, color=colour, markersize=2)
        if column == columns[0]:
            axis.set_ylabel(METRICS[metric])
        if titles and metric == metrics[0]:
            axis.set_title(column)
        if metric == metrics[-1] or len(columns) == 1:
            axis.set_xlabel("block")
    named = handles({name: {"color": colour} for name, colour in colours.items()})
    figure.legend(handles=named, loc="outside lower center", frameon=False, fontsize=8,
                  ncols=int(figure.get_figwidth() / 1.7))  # fmt: skip
    return figure
