"""Cells with their verdicts, laid out in blocks, rows and columns: what every format shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oversmoothing.report.cells import Cell
from oversmoothing.report.verdict import Measured, Verdict, verdict

Pair = tuple[Cell, Measured | None]


@dataclass(frozen=True)
class Entry:
    """A cell, its measurement and what came of it.

    Args:
        best: whether it has the highest mean of its block and column, where that is a merit.
    """

    cell: Cell
    measured: Measured | None
    verdict: Verdict
    best: bool = False

    @property
    def label(self) -> str:
        """Of the row, with the reading that it belongs to."""
        cell = self.cell
        return f"{cell.row}, {cell.reading}" if cell.reading else cell.row

    @property
    def difference(self) -> float | None:
        """Ours − published, in the unit of the cell."""
        if self.measured is None or self.cell.target is None:
            return None
        return self.measured.mean - self.cell.target

    @property
    def ours(self) -> str:
        """``mean ± std``, with n where it is not the published number of runs."""
        if self.measured is None:
            return str(self.verdict)
        n = self.measured.n
        return spread(self.measured.mean, self.measured.std) + (
            "" if n == self.cell.runs else f", n = {n}"
        )

    @property
    def printed(self) -> str:
        """The published value with its printed decimals; † a misprint; empty where none is."""
        if self.cell.value is None:
            return ""
        dagger = "" if self.cell.corrected is None else "†"
        return f"{self.cell.value:.{self.cell.decimals}f}{dagger}"

    @property
    def mark(self) -> str:
        """✓ within, ▲ above, ▼ below, ✗ contradicted; nothing where nothing was measured."""
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
        place = [cell.block, self.label, cell.column]
        if measured is None:
            return [*place, "0", "", published, "", str(self.verdict), cell.command]
        ours = spread(measured.mean, measured.std)
        shift = "" if self.difference is None else f"{self.difference:+.2f}"
        return [*place, str(measured.n), ours, published, shift, str(self.verdict), measured.run_id]


@dataclass(frozen=True)
class Block:
    """Rows × columns; None where a row has no such cell."""

    name: str
    columns: list[str]
    rows: dict[str, list[Entry | None]]


def spread(mean: float, std: float | None) -> str:
    """``mean ± std`` with two decimals."""
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def judge(pairs: Sequence[Pair]) -> list[Entry]:
    """Every cell with its verdict; the best mean of every column is marked.

    Judge a whole table before narrowing it: a verdict may need the baseline row.
    """
    entries = []
    for cell, measured in pairs:
        rivals = [m.mean for c, m in pairs if m is not None and _column(c) == _column(cell)]
        highest = max((mean for mean in rivals if math.isfinite(mean)), default=None)
        best = cell.bold and measured is not None and measured.mean == highest
        baseline = _baseline(cell, pairs)
        entries.append(Entry(cell, measured, verdict(cell, measured, baseline), best))
    return entries


def layout(entries: Sequence[Entry]) -> list[Block]:
    """The blocks of a table; rows and blocks in the order of the cells, columns in the table's."""
    blocks = []
    used = dict.fromkeys(entry.cell.column for entry in entries)
    printed = [column for entry in entries[:1] for column in entry.cell.about.columns]
    columns = [c for c in printed if c in used] + [c for c in used if c not in printed]
    for name in dict.fromkeys(entry.cell.block for entry in entries):
        rows: dict[str, list[Entry | None]] = {}
        for entry in entries:
            if entry.cell.block == name:
                row = rows.setdefault(entry.label, [None] * len(columns))
                row[columns.index(entry.cell.column)] = entry
        blocks.append(Block(name, columns, rows))
    return blocks


def is_baseline(other: Cell, cell: Cell) -> bool:
    """Whether ``other`` is the cell of the baseline row, in the same column and reading."""
    place = (*_column(other), other.reading, other.key)
    return place == (*_column(cell), cell.reading, cell.baseline)


def _column(cell: Cell) -> tuple[str, str, str]:
    return cell.table, cell.block, cell.column


def _baseline(cell: Cell, pairs: Sequence[Pair]) -> Pair | None:
    return next((pair for pair in pairs if is_baseline(pair[0], cell)), None)
