"""A cell of a table: what was published, if anything, and what it takes to measure it here."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """What all cells of a table share.

    Args:
        note: what to know of the table as printed.
        columns: in the order in which they are printed.
        ours: measured here and published nowhere, so that no cell gets a verdict.
    """

    name: str
    title: str
    source: str
    unit: str
    note: str
    columns: tuple[str, ...] = ()
    ours: bool = False


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        block, row, column: as printed; ``key`` is the row's short name, ``also`` its other names.
        value: as printed; None in a table of ours and where the printed value was not at hand;
            ``corrected`` where it is certainly a misprint.
        std: the printed ± in the table's unit (converted where it is printed as a fraction).
        decimals: with which the value is printed.
        overrides: of ``train.py``, besides ``experiment``; those of the block first, then of the
            row, the column and the reading.
        experiment, metric: what is run, and the key of its result (``layers.cosine.-1`` goes into
            mappings and lists); a cell that lacks either cannot be run here.
        tolerance: in the table's unit; runs: behind the published mean, 0 where there is none.
        reason: why it is not run here unasked; None where it is.
        baseline: key of the row that it is compared with; None where there is none.
        unit: where it is not the table's; bold: whether the highest of its column is.
        reading: of the paper under which the cell is measured; empty: the plain one.
        control: a measurement beside the published number, which the paper does not claim.
    """

    about: Table
    block: str
    row: str
    key: str
    column: str
    value: float | None
    std: float | None
    experiment: str | None
    overrides: tuple[str, ...]
    metric: str | None
    tolerance: float
    runs: int
    reason: str | None = None
    note: str = ""
    reading: str = ""
    control: bool = False
    corrected: float | None = None
    decimals: int = 2
    also: tuple[str, ...] = ()
    baseline: str | None = None
    unit: str | None = None
    bold: bool = True

    @property
    def runnable(self) -> bool:
        """Whether there is anything to run for it."""
        return self.experiment is not None and self.metric is not None

    @property
    def command(self) -> str:
        """What runs it, quoted for a shell; empty where there is nothing to run."""
        words = ["python", "train.py", f"experiment={self.experiment}", *self.overrides]
        return shlex.join(words) if self.runnable else ""

    @property
    def table(self) -> str:
        return self.about.name

    @property
    def target(self) -> float | None:
        """What a measurement is compared with."""
        return self.value if self.corrected is None else self.corrected
