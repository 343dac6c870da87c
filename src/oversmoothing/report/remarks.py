"""What is said beside a table: counts, legend, notes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from oversmoothing.report.grid import Entry
from oversmoothing.report.verdict import Verdict

LEGEND = (
    "Each cell: measured mean ± std over seeds (ddof = 1), then the published value and "
    "✓ within, ▲ ▼ off (above, below), ✗ contradicted. Bold: best measured of its column."
)
LEGEND_OURS = "Each cell: mean ± std over n seeds (ddof = 1). Bold: highest mean of its column."


def legend(entries: Sequence[Entry]) -> str:
    """How to read the cells of a table."""
    return LEGEND_OURS if entries[0].cell.about.ours else LEGEND


def counts(entries: Sequence[Entry]) -> str:
    """``17 of 100 cells within, 3 off, 80 missing.``"""
    first = Verdict.MEASURED if entries[0].cell.about.ours else Verdict.WITHIN
    numbers = {kind: sum(entry.verdict is kind for entry in entries) for kind in Verdict}
    rest = [f"{n} {kind}" for kind, n in numbers.items() if n and kind is not first]
    cells = "cell" if len(entries) == 1 else "cells"
    return f"{', '.join([f'{numbers[first]} of {len(entries)} {cells} {first}', *rest])}."


def notes(entries: Sequence[Entry]) -> list[str]:
    """What to know of the published cells, why some were not run, how the others were measured."""
    about = dict.fromkeys(entry.cell.about.note for entry in entries if entry.cell.about.note)
    remarks = _gathered(entries, lambda entry: entry.cell.note)
    skipped = [entry for entry in entries if entry.verdict is Verdict.NOT_RUN]
    reasons = _gathered(skipped, lambda entry: entry.cell.reason)
    if len(reasons) > 1:  # of several, "all" says too much
        number = Counter(entry.cell.reason for entry in skipped)
        reasons = {r: f"{number[r]} cells" if w == "all" else w for r, w in reasons.items()}
    return [
        *about,
        *(f"{where}: {note}" for note, where in remarks.items()),
        *(f"Not run ({where}): {reason}." for reason, where in reasons.items()),
        *_circumstances(entries),
    ]


def _circumstances(entries: Sequence[Entry]) -> list[str]:
    """Weights and conditions of what was measured, as its results tell them."""
    measured = [(entry, entry.measured) for entry in entries if entry.measured is not None]
    weights = dict.fromkeys(ours.weights for _, ours in measured if ours.weights)
    lines = []
    for text in weights:
        rows = dict.fromkeys(entry.label for entry, ours in measured if ours.weights == text)
        lines.append(f"Weights{_of(rows) if len(weights) > 1 else ''}: {text}.")
    for text in dict.fromkeys(ours.conditions for _, ours in measured if ours.conditions):
        columns = dict.fromkeys(e.cell.column for e, ours in measured if ours.conditions == text)
        lines.append(f"Measured{_of(columns)}: {text}.")
    return lines


def _of(names: Iterable[str]) -> str:
    return f" ({', '.join(names)})"


def _gathered(entries: Sequence[Entry], text: Callable[[Entry], str | None]) -> dict[str, str]:
    """Text -> the cells that it is about, named by what they have in common."""
    gathered = {}
    for note in dict.fromkeys(filter(None, map(text, entries))):
        cells = [entry.cell for entry in entries if text(entry) == note]
        sets = ({c.block for c in cells}, {c.row for c in cells}, {c.column for c in cells})
        where = [name for names in sets if len(names) == 1 for name in names if name]
        gathered[note] = ", ".join(where) or "all"
    return gathered
