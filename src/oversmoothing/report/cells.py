"""A cell of a table: what was published, if anything, and what it takes to measure it here."""

import shlex
from dataclasses import dataclass, field

from oversmoothing.report.schema import Table


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        block, row, column: as printed; ``key`` is the row's short name, ``also`` its other names.
        value: as printed; None in a table of ours and where the printed value was not at hand.
        std: the printed ± in the table's unit (converted where it is printed as a fraction).
        experiment, metric: what is run, and the key of its result (``layers.cosine.-1`` goes into
            mappings and lists); a cell that lacks either cannot be run here.
        overrides: of ``train.py``, besides ``experiment``; those of the block first, then of the
            row, the column, the remark and the reading.
        tolerance: in the table's unit.
        runs: number of runs behind the published mean; 0 where nothing is published.
        reason: why it is run only on request; None where it is run.
        reading: of the paper under which the cell is measured; empty for the plain one.
        control: whether it is measured beside a published number about which it says nothing.
        corrected: the right value, where the printed one is certainly a misprint.
        decimals: with which the value is printed.
        baseline: key of the row that it is compared with.
        unit: where it is not the table's.
        bold: whether the highest value of its column is printed in bold.
    """

    about: Table = field(repr=False)
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
    def label(self) -> str:
        """Of the row, with the reading that it belongs to."""
        return f"{self.row}, {self.reading}" if self.reading else self.row

    @property
    def target(self) -> float | None:
        """What a measurement is compared with."""
        return self.value if self.corrected is None else self.corrected
