"""Draws the mIoU of a training over its iterations, and that of its CAMs over thresholds.

oversmoothing figure training
oversmoothing figure training wsss_overnight --pdf
"""

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.methods import styles_of
from oversmoothing.lab.drawing.panels import LINES, draw_line, extremes, handles, panels
from oversmoothing.lab.drawing.tokens import mean_and_std
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.report.results import Planned, collect
from oversmoothing.lab.report.tables import load, select

CURVES = {"CAM": "val_cam_curve", "aux CAM": "val_aux_cam_curve"}  # threshold -> mIoU
SHOWN = ("CAM", "pseudo label", "seg.", "seg. MS + CRF")  # of the columns of the table
AXES = {"step": "iterations", "threshold": "threshold of the CAM"}


def main(argv: list[str]) -> int:
    """Writes PNG and CSV of ``<table>_training`` and, if measured, of ``<table>_thresholds``."""
    parser = figure_parser(__doc__)
    parser.add_argument("table", nargs="?", default="wsss_overnight", help="default: %(default)s")
    options = parser.parse_args(argv)
    cells = select(load(RESULTS / "expected"), options.table)
    planned = collect(cells, [], RESULTS / f"{options.table}.jsonl")
    if not (rows := curve_rows(planned)):
        way_out = f"run `oversmoothing table {options.table}`"
        raise InputError(f"{options.table}_training: nothing is measured yet; {way_out}")
    for name, found in (("training", rows), ("thresholds", threshold_rows(planned))):
        stem = options.target / "figures" / f"{options.table}_{name}"
        if found:  # a run without curves over thresholds has no such figure
            print(*save(draw(found), stem, options.pdf), sep="\n")
            print(write_csv(stem.with_suffix(".csv"), found[0], (row.values() for row in found)))
    return 0


def curve_rows(planned: Sequence[Planned]) -> list[dict[str, Any]]:
    """Returns mean, std (ddof = 1) and number of seeds for each cell and evaluated iteration."""
    return [
        {"row": cell.cell.label, "column": cell.cell.column, "step": step} | mean_and_std(values)
        for cell in planned
        for step, values in _by_step(cell).items()
    ]


def threshold_rows(planned: Sequence[Planned]) -> list[dict[str, Any]]:
    """Returns mean, std and number of seeds for the CAMs after training, by row and threshold."""
    rows = {cell.cell.label: cell.finished for cell in planned}  # all cells of a row are one run
    return [
        {"row": row, "column": f"{column}, all labels", "threshold": float(threshold)}
        | mean_and_std([seed[curve][threshold] for seed in seeds])
        for column, curve in CURVES.items()
        for row, seeds in rows.items()
        for threshold in (seeds[0].get(curve, {}) if seeds else {})
    ]


def _by_step(planned: Planned) -> dict[int, list[float]]:
    """Maps iterations to the values of all finished seeds; the last is from the results."""
    metric, values = planned.cell.metric, {}
    for seed in planned.finished:
        last = {"step": planned.config.trainer.iterations}
        for evaluation in [*seed.get("history", []), seed | last]:
            if metric in evaluation:
                values.setdefault(evaluation["step"], []).append(evaluation[metric])
    return values


@matplotlib.rc_context(LINES)
def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draws a panel for each shown column of the table, with a line for each row."""
    every, key = list(dict.fromkeys(r["column"] for r in rows)), list(rows[0])[2]
    columns = [column for column in every if column in SHOWN] or every
    styles = styles_of(r["row"] for r in rows)
    size = {"each": (2.6, 1.9), "margin": (0.0, 1.3), "least": 5.2}
    figure, axes = panels(columns, min(2, len(columns)), **size)
    for column, axis in axes.items():
        own = [row for row in rows if row["column"] == column]
        for label, style in styles.items():
            line = [row for row in own if row["row"] == label]
            values = ([r[name] for r in line] for name in (key, "mean", "std"))
            draw_line(axis, *values, **style, markersize=3, linewidth=1.2, capsize=2)
        axis.set_title(column, fontsize=9)
        axis.set_xlabel(AXES[key])
        axis.locator_params(axis="x", nbins=3)
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel("mIoU, % (higher: better)")
    best = {label: max(r["mean"] for r in rows if (r["row"], r["column"]) == (label, columns[0]))
            for label in styles}  # fmt: skip
    figure.suptitle(extremes(f"{columns[0]}: highest mIoU", best, 1), fontsize=9)
    figure.legend(handles=handles(styles), loc="outside lower center", frameon=False)
    return figure
