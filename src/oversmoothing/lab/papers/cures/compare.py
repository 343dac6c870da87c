"""Paired comparisons of methods with the network without a method, corrected for their number."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from scipy.stats import false_discovery_control

from oversmoothing.lab.papers.cures.records import Measured
from oversmoothing.lab.papers.cures.study import Cell
from oversmoothing.lab.report.verdict import paired

BASELINE = "none"
RATE = 0.05  # of false discoveries


class Comparison(NamedTuple):
    """The comparison of a method with the baseline on the same graph, network and depth.

    Args:
        difference: of the mean test accuracies, in points.
        p: two-sided, of a paired t-test over seeds; NaN with fewer than two of them.
        adjusted: p corrected for the number of all comparisons (Benjamini and Hochberg).
    """

    difference: float
    p: float
    adjusted: float

    @property
    def significant(self) -> bool:
        return self.adjusted < RATE


def compare(measured: Mapping[Cell, Measured]) -> dict[Cell, Comparison]:
    """Compares every measured cell with its baseline if that is also measured."""
    pairs = {cell: measured.get(cell._replace(method=BASELINE)) for cell in measured}
    pairs = {cell: base for cell, base in pairs.items() if base and cell.method != BASELINE}
    p = {cell: paired(measured[cell].test, base.test).p for cell, base in pairs.items()}
    known = [cell for cell in pairs if math.isfinite(p[cell])]
    adjusted = dict(zip(known, map(float, false_discovery_control([p[cell] for cell in known]))))
    return {
        cell: Comparison(measured[cell].mean - base.mean, p[cell], adjusted.get(cell, math.nan))
        for cell, base in pairs.items()
    }
