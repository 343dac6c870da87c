"""The style of all figures, and figures of several panels with lines of mean ± std."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

STYLE = {"font.size": 9, "figure.dpi": 110, "pdf.fonttype": 42}  # 42: text stays text in a PDF
LINES = STYLE | {  # of panels with curves
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "figure.dpi": 200,
}
MINUS = re.compile(r"(?<!\w)-(?=\d)")  # not the hyphen of a name
Size = tuple[float, float]  # width and height in inches


def panels(
    names: Sequence[Any], across: int, each: Size, margin: Size, least: float = 0.0, **axes: Any
) -> tuple[Figure, dict[Any, Axes]]:
    """Creates a figure with one panel for each name, and no empty ones.

    Args:
        names: in the order of reading.
        across: panels in a row.
        each: size of a panel.
        margin: width and height of the rest of the figure.
        least: smallest width of the figure.
        axes: options of ``Figure.subplots``, such as ``sharex``.

    Returns:
        The figure, and the axes of each name.
    """
    down = max(1, -(-len(names) // across))
    size = (max(each[0] * across + margin[0], least), each[1] * down + margin[1])
    figure = Figure(figsize=size, layout="constrained")
    found = figure.subplots(down, across, squeeze=False, **axes).flat
    for spare in found[len(names) :]:
        spare.remove()
    return figure, dict(zip(names, found))


def draw_line(
    axis: Axes,
    x: Sequence[float],
    mean: Sequence[float],
    std: Iterable[float | None],
    band: bool = False,
    **style: Any,
) -> None:
    """Draws means with bars, or a band, of ± one standard deviation.

    Args:
        std: None for a mean of one value.
        style: of ``Axes.errorbar``; of ``Axes.plot`` with a band.
    """
    if not band:
        axis.errorbar(x, mean, [s or 0.0 for s in std], **style)
        return
    axis.plot(x, mean, **style)
    if None not in (spread := list(std)):
        low, high = ([m + sign * s for m, s in zip(mean, spread)] for sign in (-1, 1))
        axis.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def depth_axis(axis: Axes, depths: Iterable[int]) -> None:
    """Makes the x-axis logarithmic, with a tick at each depth."""
    depths = sorted(depths)
    axis.set_xscale("log", base=2)
    axis.set_xticks(depths, [str(depth) for depth in depths])
    axis.minorticks_off()


def from_zero(axis: Axes) -> None:
    """Lets a linear y-axis begin at 0 or below, so that small differences look small."""
    low, high = axis.get_ylim()
    axis.set_ylim(min(0.0, low), high * (1.05 if low > 0 else 1))


def beside(number: int, octaves: float) -> list[float]:
    """Returns the factors of a depth that lay lines side by side, so that none hides another.

    Args:
        number: of lines.
        octaves: between neighbours, on the logarithmic axis of depths.
    """
    return [2 ** (octaves * (i - (number - 1) / 2)) for i in range(number)]


def handles(styles: Mapping[str, Mapping[str, Any]]) -> list[Line2D]:
    """Returns the entries of a legend: one line for each label, in its style."""
    return [Line2D([], [], label=label, **style) for label, style in styles.items()]


def extremes(what: str, values: Mapping[str, float], digits: int = 2) -> str:
    """Returns a title that says which label has the highest and which the lowest value."""
    high, low = (pick(values, key=values.__getitem__) for pick in (max, min))
    shown = [f"{values[label]:.{digits}f} ({label})" for label in dict.fromkeys((high, low))]
    return f"{what}: {MINUS.sub('−', ', '.join(shown))}"
