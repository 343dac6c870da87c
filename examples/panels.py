"""Writes the files of the examples, tables and panels of curves, and reads their options."""

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import oversmoothing as osm
from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.panels import COLOURS, LINES, MARKERS
from oversmoothing.lab.launch.script import add_publish

Curve = tuple[Sequence[float], Sequence[float | None]]  # positions on the x axis, values
ROOT = os.environ.get("DATA_ROOT", "data")  # of the data sets and weights

METRICS = ("cosine", "effective_rank", "mean_share")
Row = tuple[str, int, int, float, float, float]  # network, seed, layer, METRICS


def existing(path: Path) -> Path:
    """Returns the path of a file. Raises InputError if there is no such file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; put it there, or set DATA_ROOT to your data")
    return path


def parser() -> argparse.ArgumentParser:
    """Returns the parser of an example."""
    made = argparse.ArgumentParser()
    add_publish(made)
    return made


def folder() -> Path:
    """Returns the folder of the files: ``outputs/diagnose``, with --publish that in results."""
    path = parser().parse_known_args()[0].target / "diagnose"
    path.mkdir(parents=True, exist_ok=True)
    return path


def write(name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes ``<name>.csv``."""
    print(write_csv(folder() / f"{name}.csv", header, rows))


@matplotlib.rc_context(LINES)
def draw(
    name: str,
    panels: Mapping[str, Mapping[str, Curve]],
    xlabel: str,
    log_x: bool = False,
    log_y: Sequence[str] = (),
    dashed: Sequence[str] = (),
    columns: int = 4,
) -> None:
    """Saves ``<name>.png``.

    Args:
        name: of the file.
        panels: title -> label -> curve. A label has the same colour in all panels, as has the label
            with ``, random`` appended.
        xlabel: below the panels of the last row.
        log_x: use a logarithmic x axis, for depths of 2, 4, 8, …
        log_y: titles of the panels with a logarithmic y axis.
        dashed: labels with a dashed line, such as random networks.
        columns: number of panels in a row.
    """
    labels = list(dict.fromkeys(label for curves in panels.values() for label in curves))
    bases = list(dict.fromkeys(label.removesuffix(", random") for label in labels))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure((2.9 * columns, 2.4 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, (title, curves) in zip(axes.flat, panels.items()):
        for label, (x, y) in curves.items():
            i = bases.index(label.removesuffix(", random"))
            style = (0, (4, 2)) if label in dashed else "-"
            axis.plot(x, y, color=COLOURS[i % 7], marker=MARKERS[i % 7], ms=3.5, lw=1.3,
                      linestyle=style, label=label)  # fmt: skip
        _scale(axis, x if log_x else None, title in log_y)
        axis.set_title(title, fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel(xlabel)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    handles = {h.get_label(): h for axis in figure.axes for h in axis.get_lines()}
    figure.legend(handles.values(), handles, loc="outside lower center", frameon=False,
                  ncols=min(len(labels), 2 * columns))  # fmt: skip
    print(*save(figure, folder() / name))


def by_layer(label: str, seed: int, report: osm.Report) -> list[Row]:
    """Returns a row for each layer of a trained network, and of the network at random weights."""
    both = ((label, report), (f"{label}, random", report.reference))
    return [
        (name, seed, layer + 1, *(found[metric][layer] for metric in METRICS))
        for name, found in both
        for layer in range(len(found.layers))
    ]


def draw_layers(name: str, rows: list[Row]) -> None:
    """Writes rows of ``by_layer``, and draws their means over the seeds."""
    write(name, ("network", "seed", "layer", *METRICS), rows)
    labels, depth = dict.fromkeys(row[0] for row in rows), sorted({row[2] for row in rows})
    seeds = len({row[1] for row in rows})
    curves = {
        metric.replace("_", " "): {
            label: (depth, [mean(row[3 + i] for row in rows if row[0] == label and row[2] == d)
                            for d in depth])
            for label in labels
        }
        for i, metric in enumerate(METRICS)
    }  # fmt: skip
    dashed = [label for label in labels if label.endswith("random")]
    draw(name, curves, f"layer (mean of {seeds} seeds)" if seeds > 1 else "layer", dashed=dashed)


def _scale(axis: Axes, depths: Sequence[float] | None, log_y: bool) -> None:
    """Sets the scales; depths to be equally far apart, None: the x axis is linear."""
    if depths is None:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axis.set_xscale("log", base=2)
        axis.set_xticks(depths, list(map(str, depths)))
        axis.minorticks_off()
    if log_y:
        axis.set_yscale("log")
