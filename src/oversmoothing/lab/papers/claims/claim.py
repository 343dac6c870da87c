"""A claim of a paper, its finding, and the rules that turn numbers into a verdict."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.report.verdict import SIGNIFICANCE, Comparison, Measured, differ

SMALL = "small runs"
OWN = "Our questions"  # in place of a paper: a question that no paper's claim answers


class Verdict(StrEnum):
    """Verdicts of claims, in the order in which tables list them."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    CONTRADICTED = "contradicted"
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


@dataclass(frozen=True)
class Claim:
    """A statement of a paper.

    Args:
        paper: its short name, or ``OWN`` for a statement of ours.
        name: key, unique over all papers.
        place: position in the paper.
        statement: the claim in our words.
        experiment: the experiment, also for a claim that is not run.
        measure: computes the finding from the results folder or by a small experiment.
        missing: why the claim is not measured; replaces ``measure``.
        command: reproduces the numbers; empty: `make claims` with the name.
        cheap: whether ``measure`` only reads results.
        scale: ``SMALL`` if the network, the data or the training is far smaller than the paper's.
    """

    paper: str
    name: str
    place: str
    statement: str
    experiment: str
    measure: Callable[[Evidence], Finding] | None = None
    missing: str = ""
    command: str = ""
    cheap: bool = True
    scale: str = ""

    def finding(self, evidence: Evidence) -> Finding:
        """Returns the finding; if results or data are missing, it is "not run" with the reason."""
        if self.measure is None:
            return Finding(Verdict.NOT_RUN, self.missing, "")
        try:
            return self.measure(evidence)
        except NotRecordedError as error:
            return Finding(Verdict.NOT_RUN, str(error), "")


def span(values: Sequence[float], form: str = "") -> str:
    """Returns the range of some numbers as text; one number if both ends look the same."""
    ends = [format(end, form) for end in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))


def above_rounding(value: float) -> str:
    """Returns a value of about 0 as text, without digits that differ from one CPU to another."""
    return f"{value:.0e}" if value > 1e-14 else "1e-14 or less"


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


def directions(comparisons: Sequence[Comparison]) -> Verdict:
    """Returns the verdict of the claim that the first of two is higher in all comparisons."""
    return tendency(judged(comparisons))


def judged(comparisons: Sequence[Comparison]) -> list[bool | None]:
    """Returns for each comparison whether the first is higher; None if undecided.

    Each is decided by a paired t-test over the seeds, at p < 0.05 divided by the number of
    comparisons that have two seeds or more.
    """
    number = sum(comparison.n > 1 for comparison in comparisons)
    return [higher_in(comparison, number) for comparison in comparisons]


def higher_in(comparison: Comparison, number: int) -> bool | None:
    """Whether the first is higher in one of ``number`` comparisons; None: not significant."""
    decided = comparison.n > 1 and comparison.p < SIGNIFICANCE / number
    return comparison.mean > 0 if decided else None


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


def tendency(cases: Iterable[bool | None], all_of_them: bool = False) -> Verdict:
    """Returns ``partly`` (or ``every``) of the decided cases; undecided ones are None.

    At least half of the cases must be decided, unless one refutes a claim about all of them.
    """
    found = list(cases)
    decided = [case for case in found if case is not None]
    if all_of_them and False in decided:
        return Verdict.CONTRADICTED
    if 2 * len(decided) < len(found):
        return Verdict.UNDECIDED
    return every(decided) if all_of_them else partly(decided)


def weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the verdict of a claim with several parts, all of which must hold."""
    order = (Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.IN_PART, Verdict.HOLDS)
    return min(verdicts, key=order.index)


def at_least_one(cases: Iterable[bool | None]) -> Verdict:
    """Returns the verdict of a claim of possibility, which one example proves."""
    found = list(cases)
    if any(found):
        return Verdict.HOLDS
    return Verdict.UNDECIDED if None in found else every(found)


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
