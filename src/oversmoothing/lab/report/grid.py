"""Cells with their verdicts, laid out in blocks, rows and columns for every format."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oversmoothing.lab.report.cells import Cell
from oversmoothing.lab.report.verdict import Measured, Pair, Verdict, verdict


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
        rivals = [m.mean for c, m in pairs if m is not None and (c.block, c.column) == place]
        highest = max((mean for mean in rivals if math.isfinite(mean)), default=None)
        best = cell.bold and measured is not None and measured.mean == highest
        baseline = rows.get((cell.baseline, *place, cell.reading))
        word = verdict(cell, measured, baseline)
        entries.append(Entry(cell, measured, word, baseline, best))
    return entries


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
