"""What is said beside a table: counts, legend, notes."""

from collections.abc import Callable, Sequence

from oversmoothing.report.grid import Entry
from oversmoothing.report.verdict import Verdict

LEGEND = (
    "Each cell: measured mean ± std over seeds (ddof = 1), then the published value and "
    "✓ within, ▲ ▼ off (above, below), ✗ contradicted. Bold: best measured of its column."
)


def counts(entries: Sequence[Entry]) -> str:
    """``17 of 100 cells within, 3 off, 80 missing.``"""
    numbers = {kind: sum(entry.verdict is kind for entry in entries) for kind in Verdict}
    rest = [f"{n} {kind}" for kind, n in numbers.items() if n and kind is not Verdict.WITHIN]
    cells = "cell" if len(entries) == 1 else "cells"
    return f"{', '.join([f'{numbers[Verdict.WITHIN]} of {len(entries)} {cells} within', *rest])}."


def notes(entries: Sequence[Entry]) -> list[str]:
    """What to know of the published cells, and why some were not run; one line each."""
    about = dict.fromkeys(entry.cell.about.note for entry in entries if entry.cell.about.note)
    remarks = _gathered(entries, lambda entry: entry.cell.note)
    reasons = _gathered(entries, lambda e: e.cell.reason if e.verdict is Verdict.NOT_RUN else None)
    return [
        *about,
        *(f"{where}: {note}" for note, where in remarks.items()),
        *(f"Not run ({where}): {reason}." for reason, where in reasons.items()),
    ]


def _gathered(entries: Sequence[Entry], text: Callable[[Entry], str | None]) -> dict[str, str]:
    """Text -> the cells that it is about, named by what they have in common."""
    gathered = {}
    for note in dict.fromkeys(filter(None, map(text, entries))):
        cells = [entry.cell for entry in entries if text(entry) == note]
        sets = ({c.block for c in cells}, {c.row for c in cells}, {c.column for c in cells})
        where = [name for names in sets if len(names) == 1 for name in names if name]
        gathered[note] = ", ".join(where) or "all"
    return gathered
