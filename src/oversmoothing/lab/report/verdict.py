"""Compares measurements with published values, and with each other seed by seed.

``judge`` does so for all cells of a table, and ``layout`` arranges them for every format.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy.stats import ttest_1samp, ttest_ind_from_stats

from oversmoothing.lab.report.tables import Cell

SIGNIFICANCE, CONFIDENCE = 0.05, 0.95
ROUNDING = 1e-9  # smaller differences are rounding errors


@dataclass(frozen=True)
class Measured:
    """One cell as measured here.

    Args:
        values: one for each seed, in the unit of the cell; at least one.
        seconds: duration of the run.
        seeds: of the values.
        weights: origin of the network's weights; empty if the result does not say.
        conditions: split, scales and CRF of the measurement; empty if the result does not say.
    """

    values: tuple[float, ...]
    run_id: str
    seconds: float
    seeds: tuple[int, ...]
    weights: str = ""
    conditions: str = ""

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """Sample standard deviation (ddof = 1); None for a single value, NaN for a diverged run."""
        if self.n == 1:
            return None
        return statistics.stdev(self.values) if math.isfinite(self.mean) else math.nan

    @property
    def text(self) -> str:
        """``mean ± std`` with two decimals."""
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


Pair = tuple[Cell, Measured | None]
Summary = tuple[float, float, int]  # mean, standard deviation, number of runs


class Verdict(StrEnum):
    """The verdict on a cell; see ``verdict``."""

    WITHIN = "within"
    OFF = "off"
    CONTRADICTED = "contradicted"
    NOT_RUN = "not run"
    MISSING = "missing"
    CONTROL = "control"
    MEASURED = "measured"


def verdict(cell: Cell, measured: Measured | None, baseline: Pair | None = None) -> Verdict:
    """Determines the verdict on a cell.

    - within: |ours − published| ≤ max(tolerance, 2·sqrt(s_pub²/runs + s_ours²/n)), where an
      unknown deviation (none printed, one seed) counts as 0;
    - contradicted: not within, and the comparison with the baseline row is reversed: ours − our
      baseline has the opposite sign of the published difference, and both differences are
      significant by Welch's t-test at p < 0.05 (two-sided, over seeds). A published difference
      without printed deviations counts as significant;
    - off: not within and not contradicted; diverged (NaN) runs are off;
    - control: measured next to a published number, but not comparable with it;
    - measured: no value was published, or it is unknown;
    - not run: not measured, for a reason that the cell gives;
    - missing: not measured, without a reason.

    A corrected misprint is compared with its correction.

    Args:
        cell: the cell.
        measured: its measurement; None if there is none.
        baseline: of the same block, column and reading; None if the cell is the baseline.
    """
    if measured is None:
        return Verdict.MISSING if cell.reason is None else Verdict.NOT_RUN
    if cell.value is None or cell.control:
        return Verdict.MEASURED if cell.value is None else Verdict.CONTROL
    noise = margin(measured, cell.std or 0.0, cell.runs, cell.tolerance)
    if abs(measured.mean - cell.target) <= noise + ROUNDING:
        return Verdict.WITHIN
    known = baseline is not None and baseline[0].target is not None and baseline[1] is not None
    if known and _reversed(cell, measured, *baseline):
        return Verdict.CONTRADICTED
    return Verdict.OFF


def margin(measured: Measured, std: float, runs: int, tolerance: float) -> float:
    """Returns the largest difference from a published value that counts as agreement.

    Args:
        measured: what is compared.
        std: standard deviation of the published value; 0 if it is unknown.
        runs: number of runs behind the published value.
        tolerance: the least margin.
    """
    noise = 2 * math.sqrt(std**2 / runs + (measured.std or 0.0) ** 2 / measured.n)
    return max(tolerance, 0.0 if math.isnan(noise) else noise)


def differ(a: Measured, b: Measured, comparisons: int = 1) -> bool:
    """Whether two cells differ by Welch's t-test at p < 0.05 / comparisons.

    It is false for a single seed. Two runs without any spread differ if their means do, since t is
    infinite.
    """
    if a.n < 2 or b.n < 2:
        return False
    return _welch((a.mean, a.std, a.n), (b.mean, b.std, b.n), SIGNIFICANCE / comparisons)


def _reversed(cell: Cell, ours: Measured, base: Cell, base_ours: Measured) -> bool:
    opposite = (cell.target - base.target) * (ours.mean - base_ours.mean) < 0
    return opposite and differ(ours, base_ours) and _published_differ(cell, base)


def _published_differ(a: Cell, b: Cell) -> bool:
    if a.std is None or b.std is None or min(a.runs, b.runs) < 2:
        return True
    return _welch((a.target, a.std, a.runs), (b.target, b.std, b.runs), SIGNIFICANCE)


def _welch(a: Summary, b: Summary, level: float) -> bool:
    """Whether two samples, given by mean, standard deviation and size, differ."""
    if a[1] == b[1] == 0:
        return a[0] != b[0]
    return bool(ttest_ind_from_stats(*a, *b, equal_var=False).pvalue < level)


@dataclass(frozen=True)
class Comparison:
    """The comparison of two measurements on their common seeds.

    Args:
        differences: first − second, one for each shared seed.
        low, high: 95 % confidence interval of their mean; NaN with fewer than two seeds.
        p: two-sided; NaN with fewer than two seeds or a diverged run.
    """

    differences: tuple[float, ...]
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def n(self) -> int:
        return len(self.differences)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.differences) if self.differences else math.nan

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
    """Compares two cells as ``paired`` does, in the order of our seeds."""
    return paired(dict(zip(ours.seeds, ours.values)), dict(zip(base.seeds, base.values)))


def paired(ours: Mapping[int, float], base: Mapping[int, float]) -> Comparison:
    """Paired t-test over the common seeds (Student, n − 1 degrees of freedom).

    If all differences are equal, p is its limit: 0, or 1 if they are zero.

    Args:
        ours, base: value by seed.
    """
    found = tuple(value - base[seed] for seed, value in ours.items() if seed in base)
    if len(found) < 2 or not all(map(math.isfinite, found)):
        return Comparison(found)
    if max(found) - min(found) < ROUNDING:
        return Comparison(found, found[0], found[0], float(abs(found[0]) < ROUNDING))
    test = ttest_1samp(found, 0.0)
    low, high = test.confidence_interval(CONFIDENCE)
    return Comparison(found, float(low), float(high), float(test.pvalue))


@dataclass(frozen=True)
class Entry:
    """A cell with its measurement and verdict.

    Args:
        baseline: the baseline's cell in the same block, column and reading, with its measurement.
        best: whether it has the highest mean of its block and column and is printed in bold.
    """

    cell: Cell
    measured: Measured | None
    verdict: Verdict
    baseline: Pair | None = None
    best: bool = False

    @property
    def difference(self) -> float | None:
        """Ours − published, in the unit of the cell."""
        if self.measured is None or self.cell.target is None:
            return None
        return self.measured.mean - self.cell.target

    @property
    def ours(self) -> str:
        """``mean ± std``, and n if it differs from the published number of runs."""
        if self.measured is None:
            return str(self.verdict)
        n = self.measured.n
        return self.measured.text + ("" if n == self.cell.runs else f", n = {n}")

    @property
    def printed(self) -> str:
        """The published value with its decimals, and † after a misprint; empty if unknown."""
        if self.cell.value is None:
            return ""
        dagger = "" if self.cell.corrected is None else "†"
        return f"{self.cell.value:.{self.cell.decimals}f}{dagger}"

    @property
    def mark(self) -> str:
        """✓ within, ▲ above, ▼ below, ✗ contradicted; empty without a measurement."""
        if self.difference is None or self.verdict is Verdict.CONTROL:
            return ""
        if self.verdict is Verdict.OFF:
            return "▼" if self.difference < 0 else "▲"
        return "✓" if self.verdict is Verdict.WITHIN else "✗"

    @property
    def details(self) -> list[str]:
        """Block, row, column, n, measured, published, difference, verdict, run or its command."""
        cell, measured = self.cell, self.measured
        published = self.printed + ("" if cell.std is None else f" ± {cell.std:.2f}")
        place = [cell.block, cell.label, cell.column]
        if measured is None:
            return [*place, "0", "", published, "", str(self.verdict), cell.command]
        shift = "" if self.difference is None else f"{self.difference:+.2f}"
        numbers = [str(measured.n), measured.text, published, shift]
        return [*place, *numbers, str(self.verdict), measured.run_id]


@dataclass(frozen=True)
class Block:
    """Rows × columns; None where a row has no such cell."""

    name: str
    columns: list[str]
    rows: dict[str, list[Entry | None]]


def judge(pairs: Sequence[Pair]) -> list[Entry]:
    """Determines the verdict of every cell, and marks the best mean of every column.

    Args:
        pairs: all cells of a table with their measurements, since verdicts may need the baseline.
    """
    rows = {(c.key, c.block, c.column, c.reading): (c, m) for c, m in reversed(pairs)}
    entries = []
    for cell, measured in pairs:
        place = (cell.block, cell.column)
        rivals = [m for c, m in pairs if m is not None and (c.block, c.column) == place]
        best = cell.bold and measured is not None and measured.mean == _highest(rivals)
        baseline = rows.get((cell.baseline, *place, cell.reading))
        word = verdict(cell, measured, baseline)
        entries.append(Entry(cell, measured, word, baseline, best))
    return entries


def _highest(rivals: Sequence[Measured]) -> float | None:
    """Returns the highest mean; one seed is not compared with the means of several."""
    several = [own for own in rivals if own.n > 1] or rivals
    return max((own.mean for own in several if math.isfinite(own.mean)), default=None)


def layout(entries: Sequence[Entry]) -> list[Block]:
    """Arranges cells in blocks; rows keep the order of the cells, columns that of the table."""
    blocks = []
    used = dict.fromkeys(entry.cell.column for entry in entries)
    printed = [column for entry in entries[:1] for column in entry.cell.about.columns]
    columns = [c for c in printed if c in used] + [c for c in used if c not in printed]
    for name in dict.fromkeys(entry.cell.block for entry in entries):
        rows: dict[str, list[Entry | None]] = {}
        for entry in entries:
            if entry.cell.block == name:
                row = rows.setdefault(entry.cell.label, [None] * len(columns))
                row[columns.index(entry.cell.column)] = entry
        blocks.append(Block(name, columns, rows))
    return blocks
