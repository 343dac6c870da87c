"""What a depth figure shows, as numbers."""

import csv
import io
from collections.abc import Sequence

from oversmoothing.errors import InputError
from oversmoothing.report.cells import Cell
from oversmoothing.report.grid import Entry

DEPTH = "backbone.depth="


def depth_of(cell: Cell) -> int:
    """The depth L at which a cell is run.

    Raises:
        InputError: its overrides set no depth.
    """
    depths = [o.removeprefix(DEPTH) for o in cell.overrides if o.startswith(DEPTH)]
    if not depths or not depths[-1].isdecimal():
        place = f"{cell.table}, {cell.block}, {cell.row}, {cell.column}"
        raise InputError(f"{place}: has no depth; give it an override such as {DEPTH}8")
    return int(depths[-1])


def by_depth(entries: Sequence[Entry]) -> bool:
    """Whether a depth figure can show a table: each cell of a line is run at a depth of its own."""
    cells = [entry.cell for entry in entries]
    if not all(any(o.startswith(DEPTH) for o in cell.overrides) for cell in cells):
        return False
    points = [(e.cell.block, e.label, depth_of(e.cell)) for e in entries]
    return len(set(points)) == len(points)


def to_csv(entries: Sequence[Entry]) -> str:
    """A line a point: panel, line, depth, n, mean, std, published value and ±."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["panel", "line", "depth", "n", "mean", "std", "published", "published_std"])
    for entry in entries:
        cell, ours = entry.cell, entry.measured
        numbers = (None, None, None) if ours is None else (ours.n, ours.mean, ours.std)
        place = (cell.block, entry.label, depth_of(cell))
        writer.writerow([*place, *numbers, cell.target, cell.std])
    return file.getvalue()
