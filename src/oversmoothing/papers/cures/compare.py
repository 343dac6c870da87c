"""Paired comparisons of every method with the network without one, corrected for their number."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.stats import false_discovery_control, ttest_rel

from oversmoothing.papers.cures.records import Measured
from oversmoothing.papers.cures.study import Cell

BASELINE = "none"
RATE = 0.05  # of false discoveries


class Comparison(NamedTuple):
    """A method against the baseline on the same graph, network and depth.

    Args:
        difference: of the mean test accuracies, in points.
        p: two-sided, of a paired t-test over seeds.
        adjusted: p corrected for the number of all comparisons (Benjamini and Hochberg).
    """

    difference: float
    p: float
    adjusted: float

    @property
    def significant(self) -> bool:
        return self.adjusted < RATE


def compare(measured: Mapping[Cell, Measured]) -> dict[Cell, Comparison]:
    """Compares every measured cell with its baseline, where that is measured, too."""
    pairs = {cell: measured.get(cell._replace(method=BASELINE)) for cell in measured}
    pairs = {cell: base for cell, base in pairs.items() if base and cell.method != BASELINE}
    if not pairs:
        return {}
    p = [paired_p(measured[cell].test, base.test) for cell, base in pairs.items()]
    adjusted = false_discovery_control(p)
    return {
        cell: Comparison(measured[cell].mean - base.mean, own, float(corrected))
        for (cell, base), own, corrected in zip(pairs.items(), p, adjusted)
    }


def paired_p(ours: Mapping[int, float], base: Mapping[int, float]) -> float:
    """p of a paired t-test over the seeds that both have.

    Differences without any spread give their limit: 0, or 1 if all are zero.
    """
    seeds = sorted(ours.keys() & base.keys())
    differences = np.array([ours[seed] - base[seed] for seed in seeds])
    if np.ptp(differences) < 1e-9:
        return float(math.isclose(differences[0], 0, abs_tol=1e-9))
    return float(ttest_rel([ours[s] for s in seeds], [base[s] for s in seeds]).pvalue)
