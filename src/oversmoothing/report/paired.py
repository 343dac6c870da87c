"""Two measurements compared seed by seed: a paired t-test."""

import math
import statistics
from dataclasses import dataclass

from scipy.stats import ttest_1samp

from oversmoothing.report.verdict import Measured

LEVEL = 0.95


@dataclass(frozen=True)
class Comparison:
    """Two measurements on the seeds that they share.

    Args:
        differences: one a shared seed, first − second.
        low, high: 95 % confidence interval of their mean; NaN with fewer than two seeds.
        p: two-sided; NaN with fewer than two seeds or a diverged run.
    """

    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def n(self) -> int:
        return len(self.seeds)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.differences) if self.seeds else math.nan

    @property
    def text(self) -> str:
        """``+0.91 [+0.10, +1.72], p = 0.034, n = 3``."""
        if self.n == 1:
            return f"{self.mean:+.2f}, one seed"
        if self.n == 0:
            return "no seed in common"
        if not math.isfinite(self.mean):
            return "not finite"
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}], {p}, n = {self.n}"


def compare(ours: Measured, base: Measured) -> Comparison:
    """Paired t-test over the seeds that both have (Student, n − 1 degrees of freedom).

    Differences without any spread give their limit: p = 0, or p = 1 where all are zero.
    """
    second = dict(zip(base.seeds, base.values))
    pairs = {s: v - second[s] for s, v in zip(ours.seeds, ours.values) if s in second}
    seeds, differences = tuple(pairs), tuple(pairs.values())
    if len(seeds) < 2 or not all(map(math.isfinite, differences)):
        return Comparison(seeds, differences)
    if len(set(differences)) == 1:
        same = differences[0]
        return Comparison(seeds, differences, same, same, float(same == 0))
    test = ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(LEVEL)
    return Comparison(seeds, differences, float(low), float(high), float(test.pvalue))
