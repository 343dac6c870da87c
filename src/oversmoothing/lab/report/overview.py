"""Counts the published numbers of each paper that agree, differ or are missing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oversmoothing.lab.report import claims as words
from oversmoothing.lab.report.grid import Entry
from oversmoothing.lab.report.verdict import Verdict

ORDER = (
    Verdict.WITHIN,
    Verdict.OFF,
    Verdict.CONTRADICTED,
    Verdict.MISSING,
    Verdict.NOT_RUN,
)


@dataclass(frozen=True)
class Paper:
    """The published numbers of a paper by verdict.

    Args:
        name: short name of the paper.
        counts: number of cells by verdict.
        claims: number of claims in words by verdict.
        in_short: paragraphs of its page: a verdict of one sentence, then the reasons.
    """

    name: str
    counts: Counter[Verdict]
    claims: Counter[str] = field(default_factory=Counter)
    in_short: Sequence[str] = ()

    @property
    def parts(self) -> list[tuple[Verdict, int]]:
        """Verdicts that occur, with their number of cells, from the best to the least known."""
        return [(kind, self.counts[kind]) for kind in ORDER if self.counts[kind]]

    @property
    def claim_parts(self) -> list[tuple[str, int]]:
        """Verdicts of the claims in words, with the number of each."""
        return [(kind, self.claims[kind]) for kind in words.ORDER if self.claims[kind]]

    @property
    def claim_line(self) -> str:
        """``38 claims in words; holds: 4, holds in part: 11, …``"""
        parts = [f"{kind}: {number}" for kind, number in self.claim_parts]
        return f"{self.claims.total()} claims in words; {', '.join(parts)}."

    @property
    def line(self) -> str:
        """``92 of 175 published numbers measured: 78 agree, 14 differ.``"""
        agree, differ, contradicted = (self.counts[kind] for kind in ORDER[:3])
        measured, total = agree + differ + contradicted, self.counts.total()
        first = f"{measured} of {total} published numbers measured"
        if not measured:
            return f"None of {total} published numbers is measured by a training run."
        others = [f"{differ} differ"] * bool(differ)
        others += [f"{contradicted} against the published comparison"] * bool(contradicted)
        return f"{first}: {', '.join([f'{agree} agree', *others])}."


def papers(entries: Iterable[Entry], claims: Sequence[words.Entry] = ()) -> list[Paper]:
    """Counts the published numbers of every paper, and its claims in words.

    Other readings of a paper, controls, and numbers that are not at hand do not count.
    """
    found: dict[str, Counter[Verdict]] = {}
    for entry in entries:
        cell = entry.cell
        if cell.value is not None and not cell.reading and not cell.control:
            name = cell.about.source.partition(",")[0]
            found.setdefault(name, Counter())[_verdict(entry)] += 1
    said: dict[str, Counter[str]] = {}
    for claim in claims:
        said.setdefault(claim["paper"], Counter())[claim["verdict"]] += 1
    return [Paper(name, counts, said.get(name, Counter())) for name, counts in found.items()]


def _verdict(entry: Entry) -> Verdict:
    """The verdict of a cell. One that waits for a search needs no other data to be measured."""
    waits = entry.cell.about.tuned and entry.verdict is Verdict.NOT_RUN
    return Verdict.MISSING if waits else entry.verdict
