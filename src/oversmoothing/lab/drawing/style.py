"""The style of all figures."""

import itertools
from collections.abc import Iterable

STYLE = {"font.size": 9, "figure.dpi": 110, "pdf.fonttype": 42}  # 42: text stays text in a PDF
LINES = STYLE | {  # of panels with curves
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "figure.dpi": 200,
}
# Okabe and Ito's colours for the colour-blind; the first is for the baseline.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
MARKERS = "osD^vPX"


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Returns a colour for each name, in the order of their first occurrence."""
    return dict(zip(dict.fromkeys(names), itertools.cycle(COLOURS)))
