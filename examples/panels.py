"""Writes the files of the examples, tables and panels of curves, and reads their options.

python examples/panels.py      # draws the figures again from results/diagnose, measures nothing
"""

import argparse
import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

import oversmoothing as osm
from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.methods import styles_of
from oversmoothing.lab.drawing.panels import LINES, extremes, from_zero
from oversmoothing.lab.launch.script import add_publish, run_script
from oversmoothing.lab.papers import RESULTS
from oversmoothing.lab.store.files import read_csv

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
    xlabel: str | Sequence[str],
    log_x: bool = False,
    log_y: Sequence[str] = (),
    dashed: Sequence[str] = (),
    columns: int = 4,
) -> None:
    """Saves ``<name>.png``. Its title says where the curves of the first panel end.

    Args:
        name: of the file.
        panels: title -> label -> curve. A method has the same colour in all figures. A label that
            begins with ``_`` is not in the legend.
        xlabel: below the panels of the last row; a list: one for each of these.
        log_x: use a logarithmic x axis, for depths of 2, 4, 8, …
        log_y: titles of the panels with a logarithmic y axis.
        dashed: labels with a dashed line, such as random networks.
        columns: number of panels in a row.
    """
    styles = styles_of(label for curves in panels.values() for label in curves)
    for label in styles.keys() & {*dashed}:
        styles[label]["linestyle"] = (0, (4, 2))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure((5.2, 1.7 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, (title, curves) in zip(axes.flat, panels.items()):
        for label, (x, y) in curves.items():
            axis.plot(x, y, ms=3, lw=1.2, label=label.replace("= -", "= −"), **styles[label])
        _scale(axis, x if log_x else None, title in log_y)
        axis.set_title(title.replace(": ", ":\n"), fontsize=9 if columns < 4 else 7)
    below = [xlabel] * columns if isinstance(xlabel, str) else xlabel
    for axis, text in zip(axes[-1], below):
        axis.set_xlabel(text)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    first, curves = next(iter(panels.items()))
    last = {label: y[-1] for label, (_, y) in curves.items()}
    figure.suptitle(extremes(f"{first}, at the end", last), fontsize=9)
    _legend(figure)
    print(*save(figure, folder() / name))


def by_layer(label: str, seed: int, report: osm.Report) -> list[Row]:
    """Returns a row for each layer of a trained network, and of the network at random weights."""
    both = ((label, report), (f"{label}, random", report.reference))
    return [
        (name, seed, layer + 1, *(found[metric][layer] for metric in METRICS))
        for name, found in both
        for layer in range(len(found.layers))
    ]


def write_layers(name: str, rows: list[Row]) -> None:
    """Writes rows of ``by_layer``, and draws them."""
    write(name, ("network", "seed", "layer", *METRICS), rows)
    draw_layers(name, rows)


def draw_layers(name: str, rows: list[Row]) -> None:
    """Draws the means of rows of ``by_layer`` over the seeds."""
    seeds = len({row[1] for row in rows})
    curves = {metric.replace("_", " "): means(rows, 2, 3 + i) for i, metric in enumerate(METRICS)}
    dashed = [label for label in dict.fromkeys(row[0] for row in rows) if label.endswith("random")]
    draw(name, curves, f"layer\n(mean of {seeds} seeds)" if seeds > 1 else "layer", dashed=dashed)


def means(rows: Sequence[tuple], x: int, column: int) -> dict[str, Curve]:
    """Returns the curve of each label, which is first in a row: means of a column for every x."""
    places = sorted({row[x] for row in rows})
    return {
        label: (places, [mean(r[column] for r in rows if (r[0], r[x]) == (label, place))
                         for place in places])
        for label in dict.fromkeys(row[0] for row in rows)
    }  # fmt: skip


def recorded(name: str) -> list[tuple]:
    """Reads the rows of a table in results/diagnose."""
    path = RESULTS / "diagnose" / f"{name}.csv"
    with existing(path).open(encoding="utf-8", newline="") as file:
        return [tuple(map(_number, line)) for line in [*csv.reader(file)][1:]]


def recorded_report(name: str) -> osm.Report:
    """Reads what a figure of a report in results/diagnose shows: layers, values and models."""
    path = existing(RESULTS / "diagnose" / f"{name}.csv")
    lines, text = read_csv(path), path.with_suffix(".txt").read_text("utf-8")
    own, random, end = {}, {}, "_reference"
    for key in list(lines[0])[1:]:
        values = [float(line[key]) if line[key] else None for line in lines]
        (random if key.endswith(end) else own)[key.removesuffix(end)] = values
    names = text.partition(":")[0], text.partition("In parentheses: ")[2].partition(".\n")[0]
    layers = tuple(line["layer"] for line in lines)
    report, other = (
        osm.Report(name, layers, values, {}, {}, samples=1, tokens=(0, 0))
        for name, values in zip(names, (own, random))
    )
    return report.compare(other) if random else report


def _number(text: str) -> float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def main() -> None:
    import diagnose_deit
    import diagnose_gcn
    import real_models
    import smollm2
    import timm_digits

    draw_layers("train_sst2_layers", recorded("train_sst2_layers"))
    draw_layers("causal_lm_6_layers", recorded("causal_lm_6_layers"))
    diagnose_deit.draw(recorded("deit"))
    timm_digits.draw(recorded("timm_digits"))
    smollm2.draw_lengths(recorded("smollm2_lengths"))
    smollm2.draw_gamma([row[:4] for row in recorded("smollm2_gamma")])
    rows = recorded("gcn_depth")
    diagnose_gcn.draw(rows, [*diagnose_gcn.GRAPHS], sorted({row[1] for row in rows}))
    for name, case in real_models.CASES.items():
        if case.drawn:
            figure, _ = recorded_report(name).plot(metrics=case.drawn)
            print(*save(figure, folder() / name))


def _legend(figure: Figure) -> None:
    """Draws one entry for each label."""
    lines = [line for axis in figure.axes for line in axis.get_lines()]
    handles = {h.get_label(): h for h in lines if not h.get_label().startswith("_")}
    figure.legend(handles.values(), handles, loc="outside lower center", frameon=False, ncols=2)


def _scale(axis: Axes, depths: Sequence[float] | None, log_y: bool) -> None:
    """Sets the scales; depths to be equally far apart, None: the x axis is linear."""
    if depths is None:
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    else:
        axis.set_xscale("log", base=2)
        axis.set_xticks(depths[::2], list(map(str, depths[::2])))
        axis.minorticks_off()
    if not log_y:
        from_zero(axis)
        return
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    if high < 1000 * low:  # 30, not 3 × 10¹
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    run_script(main)
