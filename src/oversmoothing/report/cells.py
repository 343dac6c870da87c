"""A published number and what it takes to measure it here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """What all cells of a table share.

    Args:
        baseline: key of the row that the others are compared with, if any.
        note: what to know of the table as printed.
        columns: in the order in which they are printed.
    """

    name: str
    title: str
    source: str
    unit: str
    baseline: str | None
    note: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One published number.

    Args:
        block, row, column: as printed; ``key`` is the row's short name, ``also`` its other names.
        value: as printed; ``corrected`` where that is certainly a misprint.
        std: the printed ± in the table's unit (converted where it is printed as a fraction).
        decimals: with which the value is printed.
        overrides: of ``train.py``, besides ``experiment``; those of the block first, then of the
            row, the column and the reading.
        metric: key of the result; tolerance: in the table's unit; runs: behind the published mean.
        reason: why it is not run here unasked; None where it is.
        reading: of the paper under which the cell is measured; empty: the plain one.
        control: a measurement beside the published number, which the paper does not claim.
    """

    about: Table
    block: str
    row: str
    key: str
    column: str
    value: float
    std: float | None
    experiment: str
    overrides: tuple[str, ...]
    metric: str
    tolerance: float
    runs: int
    reason: str | None = None
    note: str = ""
    reading: str = ""
    control: bool = False
    corrected: float | None = None
    decimals: int = 2
    also: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        return self.about.name

    @property
    def target(self) -> float:
        """What a measurement is compared with."""
        return self.value if self.corrected is None else self.corrected
