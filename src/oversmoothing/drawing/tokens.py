"""Token similarity by block, before and after training."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oversmoothing.errors import InputError

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)  # Okabe, Ito
MOMENTS = {"before": (0, (4, 2)), "after": "solid"}
METRICS = {"cosine": "mean cosine of two patch tokens", "effective_rank": "effective rank"}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "pdf.fonttype": 42,  # text stays text
}

Results = Mapping[str, Sequence[Mapping[str, Any]]]  # label -> the results of its seeds


def token_rows(results: Results) -> list[dict[str, Any]]:
    """One row for every label, moment, metric and block: mean and std (ddof = 1) over seeds.

    Args:
        results: with ``layers_before`` and ``layers_after``, each of ``cosine`` and
            ``effective_rank`` by block.

    Raises:
        InputError: a result without them, or seeds of different depths.
    """
    rows = []
    for label, seeds in results.items():
        for moment in MOMENTS:
            for metric in METRICS:
                for block, values in enumerate(_by_block(label, seeds, moment, metric)):
                    std = statistics.stdev(values) if len(values) > 1 else None
                    mean, n = statistics.fmean(values), len(values)
                    rows.append(
                        {"label": label, "moment": moment, "metric": metric, "block": block}
                        | {"mean": mean, "std": std, "seeds": n}
                    )
    return rows


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


def draw_tokens(results: Results) -> Figure:
    """Cosine and effective rank by block; dashed before training, solid after it, band ± std.

    Raises:
        InputError: as ``token_rows``.
    """
    rows = token_rows(results)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.0), layout="constrained")
        for axis, metric in zip(figure.subplots(1, 2), METRICS):
            _panel(axis, [row for row in rows if row["metric"] == metric], list(results))
            axis.set_ylabel(METRICS[metric])
        figure.legend(handles=_handles(list(results)), loc="outside lower center", ncols=4,
                      frameon=False, handlelength=2.6)  # fmt: skip
    return figure


def _panel(axis: Axes, rows: Sequence[dict[str, Any]], labels: Sequence[str]) -> None:
    for label, colour in zip(labels, COLOURS * len(labels)):
        for moment, dashes in MOMENTS.items():
            line = [row for row in rows if (row["label"], row["moment"]) == (label, moment)]
            x, y = [row["block"] + 1 for row in line], [row["mean"] for row in line]
            axis.plot(x, y, color=colour, linestyle=dashes, marker="o", markersize=2.5)
            if line and line[0]["std"] is not None:
                low, high = ([row["mean"] + s * row["std"] for row in line] for s in (-1, 1))
                axis.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    axis.set_xlabel("block")
    axis.xaxis.get_major_locator().set_params(integer=True)
    values = [row["mean"] + (row["std"] or 0.0) for row in rows]
    axis.set_ylim(min(0.0, *values), 1.08 * max(values))


def _handles(labels: Sequence[str]) -> list[Line2D]:
    """Colours of the labels, if they have names, then what dashes mean."""
    named = [
        Line2D([], [], color=colour, label=label)
        for label, colour in zip(labels, COLOURS * len(labels))
        if label
    ]
    grey = [
        Line2D([], [], color="#444444", linestyle=dashes, label=f"{moment} training")
        for moment, dashes in MOMENTS.items()
    ]
    return [*named, *grey]
