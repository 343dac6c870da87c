"""Draws token similarity by block, before and after training."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.methods import styles_of
from oversmoothing.lab.drawing.panels import LINES, draw_line, extremes, handles, panels

MOMENTS = {"before": (0, (4, 2)), "after": "solid"}
METRICS = {"cosine": "cosine of two patch tokens", "effective_rank": "effective rank"}

Results = Mapping[str, Sequence[Mapping[str, Any]]]  # label -> the results of its seeds


def token_rows(results: Results) -> list[dict[str, Any]]:
    """Returns one row for each label, moment, metric and block: mean and std (ddof = 1) over seeds.

    Args:
        results: with ``layers_before`` and ``layers_after``, each of ``cosine`` and
            ``effective_rank`` by block.

    Raises:
        InputError: they are missing in a result, or seeds have different depths.
    """
    return [
        {"label": label, "moment": moment, "metric": metric, "block": block} | mean_and_std(values)
        for (label, seeds), moment, metric in product(results.items(), MOMENTS, METRICS)
        for block, values in enumerate(_by_block(label, seeds, moment, metric))
    ]


def mean_and_std(values: Sequence[float]) -> dict[str, Any]:
    """Returns ``mean``, ``std`` (ddof = 1; None of one value) and the number of ``seeds``."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std, "seeds": len(values)}


def _by_block(
    label: str, seeds: Sequence[Mapping[str, Any]], moment: str, metric: str
) -> list[tuple[float, ...]]:
    try:
        return list(zip(*(seed[f"layers_{moment}"][metric] for seed in seeds), strict=True))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"tokens of {label or 'a run'}: layers_{moment}.{metric} is missing, or its seeds have "
            "different depths; expected results of task=wsss"
        ) from error


@matplotlib.rc_context(LINES)
def draw_tokens(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws the rows of ``token_rows`` by block: dashed before training, solid after it."""
    colours = {label: s["color"] for label, s in styles_of(row["label"] for row in rows).items()}
    figure, axes = panels(list(METRICS), 2, each=(2.6, 2.4), margin=(0.0, 0.8))
    for metric, axis in axes.items():
        shown = [row for row in rows if row["metric"] == metric]
        for label, colour in colours.items():
            for moment, dashes in MOMENTS.items():
                line = [row for row in shown if (row["label"], row["moment"]) == (label, moment)]
                draw_blocks(axis, line, color=colour, linestyle=dashes, markersize=2.5)
        axis.set(xlabel="block", ylabel=METRICS[metric])
        values = [row["mean"] + (row["std"] or 0.0) for row in shown]
        axis.set_ylim(min(0.0, *values), 1.08 * max(values))
    named = {"" if label == "" else f"{label}, ": label for label in colours}
    last = {f"{name}{row['moment']}": row["mean"] for name, label in named.items() for row in rows
            if (row["label"], row["metric"]) == (label, "cosine")}  # fmt: skip
    figure.suptitle(extremes("cosine after the last block", last), fontsize=9)
    figure.legend(handles=_handles(colours), loc="outside lower center", ncols=2, frameon=False,
                  handlelength=2.6)  # fmt: skip
    return figure


def draw_blocks(axis: Axes, rows: Sequence[Mapping[str, Any]], **style: Any) -> None:
    """Draws means by block, counted from 1, in a band of ± one standard deviation."""
    blocks = [row["block"] + 1 for row in rows]
    values = ([row[key] for row in rows] for key in ("mean", "std"))
    draw_line(axis, blocks, *values, band=True, marker="o", **style)
    axis.xaxis.get_major_locator().set_params(integer=True)


def _handles(colours: Mapping[str, str]) -> list[Line2D]:
    """Returns legend entries for the colours of non-empty labels and for the dashes."""
    named = {label: {"color": colour} for label, colour in colours.items() if label}
    dashed = {
        f"{moment} training": {"ls": ls, "color": "#444444"} for moment, ls in MOMENTS.items()
    }
    return handles(named | dashed)
