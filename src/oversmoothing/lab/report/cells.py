"""A cell of a table: the published number, if there is one, and the run that measures it."""

import shlex
from dataclasses import dataclass, field

from oversmoothing.lab.report.schema import Table


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        block, row, column: printed names; ``key`` and ``also`` are short names of the row.
        value: the printed value; None in a table of ours, and if the value is unknown.
        std: the printed ± in the table's unit (converted if it is printed as a fraction).
        printed_std: the printed ± without conversion.
        experiment, metric: experiment to run and key of its result (``layers.cosine.-1`` indexes
            mappings and lists); a cell without one of them cannot be run.
        overrides: further overrides of ``train.py``.
        tolerance: difference that counts as agreement, in the table's unit.
        runs: number of runs behind the published mean; 0 if nothing is published.
        reason: why it is run only on request; None if it is always run.
        reading: name of the reading of the paper; empty for the plain one.
        control: whether it is a control: measured next to a published number, not compared with it.
        corrected: the correct value if the printed one is certainly a misprint.
        decimals: number of printed decimals.
        baseline: key of the row that it is compared with.
        unit: its unit if it differs from the table's.
        bold: whether the best value of its column is printed in bold.
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
    printed_std: float | None = None

    @property
    def runnable(self) -> bool:
        """Whether the cell has an experiment to run."""
        return self.experiment is not None and self.metric is not None

    @property
    def command(self) -> str:
        """The command that runs it, quoted for a shell; empty if there is nothing to run.

        Of several overrides of a key, the last one counts and is shown.
        """
        last = {word.split("=", 1)[0]: word for word in self.overrides}
        words = ["python", "train.py", f"experiment={self.experiment}", *last.values()]
        return shlex.join(words) if self.runnable else ""

    @property
    def table(self) -> str:
        return self.about.name

    @property
    def label(self) -> str:
        """Name of the row, followed by the reading."""
        return f"{self.row}, {self.reading}" if self.reading else self.row

    @property
    def target(self) -> float | None:
        """The value that a measurement is compared with."""
        return self.value if self.corrected is None else self.corrected
