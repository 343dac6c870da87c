"""Does a measurement agree with what was published?"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy.stats import ttest_ind_from_stats

from oversmoothing.errors import InputError
from oversmoothing.report.cells import Cell

SIGNIFICANCE = 0.05
ROUNDING = 1e-9  # of binary fractions: a difference equal to the tolerance is within it


@dataclass(frozen=True)
class Measured:
    """One cell as measured here.

    Args:
        values: one a seed, in the unit of the cell.
        seconds: that the run took.
        seeds: of the values.
        weights: where the network's come from, in words; empty where the result does not say.
        conditions: under which it was measured (split, scales, CRF), likewise.

    Raises:
        InputError: no values.
    """

    values: tuple[float, ...]
    run_id: str
    seconds: float
    seeds: tuple[int, ...]
    weights: str = ""
    conditions: str = ""

    def __post_init__(self) -> None:
        if not self.values:
            raise InputError(
                f"run {self.run_id}: holds no seed; delete its result and run it again"
            )

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """Sample standard deviation (ddof = 1); None of a single value, NaN of a diverged run."""
        if self.n == 1:
            return None
        return statistics.stdev(self.values) if math.isfinite(self.mean) else math.nan


class Verdict(StrEnum):
    """How a cell stands; see ``verdict``."""

    WITHIN = "within"
    OFF = "off"
    CONTRADICTED = "contradicted"
    NOT_RUN = "not run"
    MISSING = "missing"
    CONTROL = "control"
    MEASURED = "measured"


def verdict(
    cell: Cell, measured: Measured | None, baseline: tuple[Cell, Measured | None] | None = None
) -> Verdict:
    """One word on a cell.

    - within: |ours − published| ≤ max(tolerance, 2·sqrt(s_pub²/runs + s_ours²/n)), where a
      deviation that is unknown (none printed, one seed) counts as 0;
    - contradicted: not within, and the paper's comparison with the baseline row comes out the
      other way: ours − our baseline has the opposite sign of the published difference, by Welch's
      t-test at p < 0.05 (two-sided, over seeds);
    - off: not within otherwise, a diverged (NaN) run included;
    - control: measured beside the published number, which says nothing of it;
    - measured: where nothing was published, or its value was not at hand;
    - not run: not measured, for the reason that the cell gives; missing: not measured, for none.

    A corrected misprint is compared with its correction.

    Args:
        baseline: of the same block, column and reading; None where the cell is the baseline.
    """
    if measured is None:
        return Verdict.MISSING if cell.reason is None else Verdict.NOT_RUN
    if cell.value is None or cell.control:
        return Verdict.MEASURED if cell.value is None else Verdict.CONTROL
    if abs(measured.mean - cell.target) <= margin(cell, measured) + ROUNDING:
        return Verdict.WITHIN
    known = baseline is not None and baseline[0].target is not None and baseline[1] is not None
    if known and _reversed(cell, measured, *baseline):
        return Verdict.CONTRADICTED
    return Verdict.OFF


def margin(cell: Cell, measured: Measured) -> float:
    """The difference that needs no explanation."""
    published, ours = cell.std or 0.0, measured.std or 0.0
    noise = 2 * math.sqrt(published**2 / cell.runs + ours**2 / measured.n)
    return max(cell.tolerance, 0.0 if math.isnan(noise) else noise)


def differ(a: Measured, b: Measured) -> bool:
    """Welch's t-test at p < 0.05; never with a single seed on either side.

    Two runs without any spread differ when their means do: t is infinite there.
    """
    if a.n < 2 or b.n < 2:
        return False
    if a.std == b.std == 0:
        return a.mean != b.mean
    groups: Sequence[float | int] = (a.mean, a.std, a.n, b.mean, b.std, b.n)
    return bool(ttest_ind_from_stats(*groups, equal_var=False).pvalue < SIGNIFICANCE)


def _reversed(cell: Cell, ours: Measured, base: Cell, base_ours: Measured) -> bool:
    opposite = (cell.target - base.target) * (ours.mean - base_ours.mean) < 0
    return opposite and differ(ours, base_ours)
