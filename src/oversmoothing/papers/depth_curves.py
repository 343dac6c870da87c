"""Oversmoothing by block: cosine, effective rank, similarity of attention maps, by method."""

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oversmoothing.drawing.tokens import COLOURS, STYLE
from oversmoothing.errors import InputError
from oversmoothing.report.collect import Planned
from oversmoothing.store.files import write_text
from oversmoothing.tasks.wsss.pictures import save

METRICS = {
    "cosine": "mean cosine of two tokens",
    "effective_rank": "effective rank",
    "attention_similarity": "similarity of attention rows",
}
MOMENTS = ("layers_after", "layers_before")  # trained, or as it is where nothing is trained


def curve_rows(planned: Sequence[Planned]) -> list[dict[str, Any]]:
    """One row for every measured cell of a table, metric and block: mean, std (ddof = 1), n.

    Blocks whose attention was replaced have no attention maps, and no row.
    """
    rows = []
    for cell in planned:
        for metric in METRICS:
            for block, values in enumerate(_by_block(cell, metric), start=1):
                if None in values:
                    continue
                std = statistics.stdev(values) if len(values) > 1 else None
                rows.append(
                    {"row": cell.cell.row, "column": cell.cell.column, "metric": metric}
                    | {"block": block, "mean": statistics.fmean(values), "std": std}
                    | {"seeds": len(values)}
                )
    return rows


def _by_block(planned: Planned, metric: str) -> list[tuple[float | None, ...]]:
    """Block -> values of the seeds that there are; none where they have no such metric."""
    found = planned.result["seeds"] if planned.config and planned.result else {}
    seeds = [found[str(s)] for s in planned.config.seeds if str(s) in found] if found else []
    layers = [next((s[m] for m in MOMENTS if m in s), {}).get(metric, []) for s in seeds]
    return list(zip(*layers, strict=True))


def write_curves(planned: Sequence[Planned], stem: Path, titles: bool = True) -> list[Path]:
    """Writes ``stem``.png, .pdf and .csv and returns their paths.

    Args:
        planned: cells of a table, one a run: methods down, depths across.
        titles: whether the columns of the table have names worth showing.

    Raises:
        InputError: nothing of it is measured yet.
    """
    rows = curve_rows(planned)
    if not rows:
        raise InputError(f"{stem.name}: nothing is measured yet; run its table first")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path = stem.with_name(f"{stem.name}.csv")
    write_text(path, text.getvalue())
    return [*save(draw_curves(rows, titles), stem), path]


def draw_curves(rows: Sequence[dict[str, Any]], titles: bool) -> Figure:
    """Metrics down and columns of the table across; metrics across where there is one column."""
    columns = list(dict.fromkeys(row["column"] for row in rows))
    metrics = [m for m in METRICS if any(row["metric"] == m for row in rows)]
    names = list(dict.fromkeys(row["row"] for row in rows))
    colours = dict(zip(names, COLOURS * len(names)))
    across = len(columns) if len(columns) > 1 else len(metrics)
    down = len(metrics) if len(columns) > 1 else 1
    with matplotlib.rc_context(STYLE):
        width = 2.5 * across + 0.6
        figure = Figure(figsize=(width, 2.0 * down + 0.7), layout="constrained")
        share = "row" if len(columns) > 1 else False  # columns compare with each other
        axes = figure.subplots(down, across, squeeze=False, sharey=share).flat
        for axis, (metric, column) in zip(axes, [(m, c) for m in metrics for c in columns]):
            _panel(
                axis, [r for r in rows if (r["metric"], r["column"]) == (metric, column)], colours
            )
            if column == columns[0]:
                axis.set_ylabel(METRICS[metric])
            if titles and metric == metrics[0]:
                axis.set_title(column)
            if metric == metrics[-1] or down == 1:
                axis.set_xlabel("block")
        handles = [Line2D([], [], color=colours[name], label=name) for name in names]
        figure.legend(handles=handles, loc="outside lower center", ncols=int(width / 1.7),
                      frameon=False, fontsize=8)  # fmt: skip
    return figure


def _panel(axis: Axes, rows: Sequence[dict[str, Any]], colours: dict[str, str]) -> None:
    for name, colour in colours.items():
        line = [row for row in rows if row["row"] == name]
        x, y = [row["block"] for row in line], [row["mean"] for row in line]
        axis.plot(x, y, color=colour, marker="o", markersize=2)
        if line and line[0]["std"] is not None:
            low, high = ([row["mean"] + s * row["std"] for row in line] for s in (-1, 1))
            axis.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
