"""What is measured of each paper: how many of its published numbers agree, differ, are missing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from oversmoothing.report.grid import Entry
from oversmoothing.report.verdict import Verdict

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
    """

    name: str
    counts: Counter[Verdict]

    @property
    def parts(self) -> list[tuple[Verdict, int]]:
        """Verdicts that occur, with their number of cells, from the best to the least known."""
        return [(kind, self.counts[kind]) for kind in ORDER if self.counts[kind]]

    @property
    def line(self) -> str:
        """``92 of 175 published numbers measured: 78 agree, 14 differ.``"""
        agree, differ, contradicted = (self.counts[kind] for kind in ORDER[:3])
        measured, total = agree + differ + contradicted, self.counts.total()
        first = f"{measured} of {total} published numbers measured"
        if not measured:
            return f"None of {total} published numbers is measured."
        others = [f"{differ} differ"] * bool(differ)
        others += [f"{contradicted} against the published comparison"] * bool(contradicted)
        return f"{first}: {', '.join([f'{agree} agree', *others])}."


def papers(entries: Iterable[Entry]) -> list[Paper]:
    """Counts the published numbers of every paper.

    Other readings of a paper, controls, and numbers that are not at hand do not count.
    """
    found: dict[str, Counter[Verdict]] = {}
    for entry in entries:
        cell = entry.cell
        if cell.value is not None and not cell.reading and not cell.control:
            name = cell.about.source.partition(",")[0]
            found.setdefault(name, Counter())[entry.verdict] += 1
    return [Paper(name, counts) for name, counts in found.items()]
