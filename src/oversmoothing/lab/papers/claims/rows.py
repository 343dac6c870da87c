"""Compares rows of a table cell by cell."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from oversmoothing.lab.papers.claims.claim import above
from oversmoothing.lab.papers.claims.evidence import Cells
from oversmoothing.lab.report.verdict import Measured

UNCLEAR = "?: not significant by Welch's t-test"


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


def pairs(
    cells: Cells, row: str, other: str, columns: Sequence[str] = (), blocks: Sequence[str] = ()
) -> list[Pair]:
    """Every block and column (of some, if given) where both rows are measured.

    A claim about several other rows takes ``against``.
    """
    found = [
        (block, column, measured, cells[block, other, column])
        for (block, key, column), measured in cells.items()
        if key == row
        and (block, other, column) in cells
        and (not columns or column in columns)
        and (not blocks or block in blocks)
    ]
    tested = sum(min(ours.n, base.n) > 1 for *_, ours, base in found)
    return [Pair(*pair, max(1, tested)) for pair in found]


def against(
    cells: Cells, row: str, others: Sequence[str], columns: Sequence[str] = ()
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
