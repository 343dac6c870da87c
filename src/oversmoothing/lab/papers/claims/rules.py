"""The rules that turn numbers into a verdict on a claim, and counts into words."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from scipy.stats import combine_pvalues

from oversmoothing.lab.papers.claims.evidence import Cells
from oversmoothing.lab.report.verdict import SIGNIFICANCE, Comparison, Measured, differ

TINY = 1e-15  # instead of a p of 0, whose normal score is infinite
UNCLEAR = "?: not significant by Welch's t-test"


class Verdict(StrEnum):
    """Verdicts of claims, in the order in which tables list them."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    CONTRADICTED = "contradicted"
    NOT_REPRODUCED = "not reproduced"
    UNDECIDED = "not decided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Finding:
    """The result of measuring a claim.

    Args:
        measured: description of the numbers.
        n: number of draws, seeds, cells or runs.
    """

    verdict: Verdict
    measured: str
    n: str


def every(cases: Iterable[bool]) -> Verdict:
    """Returns the verdict of a claim about all cases; one counterexample refutes it."""
    found = list(cases)
    if not found:
        return Verdict.UNDECIDED
    return Verdict.HOLDS if all(found) else Verdict.CONTRADICTED


def partly(cases: Iterable[bool]) -> Verdict:
    """Returns the verdict of a tendency, which can hold in all cases, in some or in none."""
    found = list(cases)
    return Verdict.IN_PART if any(found) and not all(found) else every(found)


def tendency(cases: Iterable[bool | None], all_of_them: bool = False) -> Verdict:
    """Returns ``partly`` (or ``every``) of the decided cases; undecided ones are None.

    More than half of the cases must be decided, unless one refutes a claim about all of them.
    """
    found = list(cases)
    decided = [case for case in found if case is not None]
    if all_of_them and False in decided:
        return Verdict.CONTRADICTED
    if 2 * len(decided) <= len(found):
        return Verdict.UNDECIDED
    return every(decided) if all_of_them else partly(decided)


def at_least_one(cases: Iterable[bool | None]) -> Verdict:
    """Returns the verdict of a claim of possibility, which one example proves."""
    found = list(cases)
    if any(found):
        return Verdict.HOLDS
    return Verdict.UNDECIDED if None in found else every(found)


def weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the verdict of a claim with several parts, all of which must hold."""
    order = (Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.IN_PART, Verdict.HOLDS)
    return min(verdicts, key=order.index)


def judged(comparisons: Iterable[Comparison]) -> list[bool | None]:
    """Returns for each comparison whether the first is higher; None if undecided.

    Each is decided by a paired t-test over the seeds, at p < 0.05 divided by the number of
    comparisons that have two seeds or more.
    """
    found = list(comparisons)
    number = sum(comparison.n > 1 for comparison in found)
    return [higher_in(comparison, number) for comparison in found]


def higher_in(comparison: Comparison, number: int) -> bool | None:
    """Whether the first is higher in one of ``number`` comparisons; None: not significant."""
    decided = comparison.n > 1 and comparison.p < SIGNIFICANCE / number
    return comparison.mean > 0 if decided else None


@dataclass(frozen=True)
class Pooled:
    """Several comparisons of independent trainings as one test, by Stouffer's method.

    z is the sum of the normal scores of the one-sided paired t-tests over √k; two-sided at 0.05. It
    comes before the comparisons one by one, which a few seeds each cannot decide.

    Args:
        higher: whether the first is higher; None: not significant, or no comparison has two seeds.
        p: two-sided.
        number: k, the comparisons with two seeds or more.
    """

    higher: bool | None
    p: float
    number: int

    @property
    def text(self) -> str:
        """``pooled over 9, p = 0.00038``."""
        return f"pooled over {self.number}, p = {self.p:.2g}"


def pooled(comparisons: Iterable[Comparison]) -> Pooled:
    """Tests several comparisons as one."""
    found = [c for c in comparisons if math.isfinite(c.p)]
    if not found:
        return Pooled(None, math.nan, 0)
    sides = [max(c.p, TINY) / 2 if c.mean > 0 else 1 - max(c.p, TINY) / 2 for c in found]
    z, one_sided = combine_pvalues(sides, method="stouffer")
    p = 2 * min(float(one_sided), 1 - float(one_sided))
    return Pooled(bool(z > 0) if p < SIGNIFICANCE else None, p, len(found))


def little(comparison: Comparison, points: float) -> bool | None:
    """Whether a difference is at most ``points`` in size, by its 95 % interval.

    True if the interval lies within ± ``points``, False if it lies outside, None if it overlaps
    both, or if there is one seed.
    """
    low, high = comparison.low, comparison.high
    if -points <= low and high <= points:
        return True
    return False if low > points or high < -points else None


def below(comparison: Comparison, points: float) -> bool | None:
    """Whether the 95 % interval is below ``points``; None if it contains it, or with one seed."""
    if comparison.n < 2 or comparison.low <= points <= comparison.high:
        return None
    return comparison.high < points


def above(a: Measured, b: Measured, comparisons: int) -> bool | None:
    """Whether the mean of a is higher than that of b; None if Welch's t-test is not significant.

    The level is 0.05 divided by the number of comparisons of the claim.
    """
    return a.mean > b.mean if differ(a, b, comparisons) else None


@dataclass(frozen=True)
class Pair:
    """Two measured cells of the same block and column, as one of several comparisons."""

    block: str
    column: str
    ours: Measured
    base: Measured
    comparisons: int  # of the claim

    @property
    def name(self) -> str:
        """``Cora L=2``; without a block ``L=2``."""
        return " ".join(filter(None, (self.block, self.column)))

    @property
    def above(self) -> bool | None:
        """Whether ours is higher; None if Welch's t-test is not significant."""
        return above(self.ours, self.base, self.comparisons)

    @property
    def text(self) -> str:
        """``Cora L=2 -2.7``, with ? where the seeds cannot tell."""
        sign = "?" if self.above is None else ""
        return f"{self.name} {self.ours.mean - self.base.mean:+.1f}{sign}"


def pairs(cells: Cells, row: str, other: str, columns: Sequence[str] = ()) -> list[Pair]:
    """Returns every block and column (of some, if given) where both rows are measured.

    A claim about several other rows takes ``against``.
    """
    found = [
        (block, column, measured, cells[block, other, column])
        for (block, key, column), measured in cells.items()
        if key == row and (block, other, column) in cells and (not columns or column in columns)
    ]
    tested = sum(min(ours.n, base.n) > 1 for *_, ours, base in found)
    return [Pair(*pair, max(1, tested)) for pair in found]


def against(
    cells: Cells, row: str, others: Iterable[str], columns: Sequence[str] = ()
) -> dict[str, list[Pair]]:
    """Returns the pairs of a row with each of the others, as comparisons of one claim."""
    found = {other: pairs(cells, row, other, columns) for other in others}
    tested = sum(each[0].comparisons for each in found.values() if each)
    return {
        other: [replace(pair, comparisons=tested) for pair in each] for other, each in found.items()
    }


def differences(found: Iterable[Pair]) -> str:
    """Formats the differences of all pairs; ``none`` if there are none."""
    return ", ".join(pair.text for pair in found) or "none"


def share(cases: Iterable[bool | None], what: str = "") -> str:
    """Returns the count of true cases in words.

    Examples: ``7 of 12 cells``, ``7 of 10 decided cells (2 not decided)``, ``0 of 12 cells (none
    decided)``.
    """
    found = list(cases)
    open_ = sum(case is None for case in found)
    if found and open_ == len(found):
        return " ".join(filter(None, (f"0 of {open_}", what))) + " (none decided)"
    counted = f"{sum(map(bool, found))} of {len(found) - open_}" + " decided" * bool(open_)
    return " ".join(filter(None, (counted, what))) + f" ({open_} not decided)" * bool(open_)


def span(values: Iterable[float], form: str = "") -> str:
    """Returns the range of some numbers as text; one number if both ends look the same."""
    found = list(values)
    ends = [format(end, form) for end in (min(found), max(found))]
    return " to ".join(dict.fromkeys(ends))


def above_rounding(value: float) -> str:
    """Returns a value of about 0 as text, without digits that differ from one CPU to another."""
    return f"{value:.0e}" if value > 1e-14 else "1e-14 or less"
