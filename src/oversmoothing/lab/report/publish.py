"""Writes a table as Markdown and CSV, with the notes that stand below it, and its figure."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from oversmoothing.lab.report import depth_figure
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.tables import Cell
from oversmoothing.lab.report.verdict import Block, Entry, Measured, Verdict, compare, judge, layout
from oversmoothing.lab.store.files import write_text

LEGEND = (
    "Each cell: measured mean ± std over seeds (ddof = 1), then the published value and "
    "✓ within, ▲ ▼ off (above, below), ✗ contradicted. Bold: best measured of its column."
)
LEGEND_OURS = (
    "Each cell: mean ± std over n seeds (ddof = 1). Bold: highest mean of its column; one seed is "
    "not compared with several."
)
COMPARED = (
    "Difference of two rows over the same seeds: mean [95 % confidence interval], p of a "
    "paired t-test (two-sided, not corrected for the number of comparisons)."
)
FIELDS: dict[str, Callable[[Entry], object]] = {
    "table": lambda e: e.cell.table,
    "block": lambda e: e.cell.block,
    "row": lambda e: e.cell.row,
    "key": lambda e: e.cell.key,
    "reading": lambda e: e.cell.reading,
    "column": lambda e: e.cell.column,
    "n": lambda e: e.measured and e.measured.n,
    "mean": lambda e: e.measured and e.measured.mean,
    "std": lambda e: e.measured and e.measured.std,
    "published": lambda e: e.cell.value,
    "published_std": lambda e: e.cell.std,
    "corrected": lambda e: e.cell.corrected,
    "difference": lambda e: e.difference,
    "verdict": lambda e: str(e.verdict),
    "reason": lambda e: e.cell.reason if e.verdict is Verdict.NOT_RUN else None,
    "run": lambda e: e.measured and e.measured.run_id,
    "seconds": lambda e: e.measured and e.measured.seconds,
    "metric": lambda e: e.cell.metric,
    "unit": lambda e: e.cell.about.unit if e.cell.unit is None else e.cell.unit,
    "tolerance": lambda e: e.cell.tolerance,
    "experiment": lambda e: e.cell.experiment,
    "overrides": lambda e: " ".join(e.cell.overrides),
    "values": lambda e: e.measured and " ".join(map(repr, e.measured.values)),
    "seeds": lambda e: e.measured and " ".join(map(str, e.measured.seeds)),
    "note": lambda e: e.cell.note,
    "weights": lambda e: e.measured and e.measured.weights,
    "conditions": lambda e: e.measured and e.measured.conditions,
}
DETAILS = ["", "", "", "n", "measured", "published", "difference", "verdict", "run"]


def publish(entries: Sequence[Entry], results: Path, pdf: bool = False) -> list[Path]:
    """Writes a table and its figure, and returns the paths of the files.

    Args:
        entries: all cells of a table.
        results: a folder such as ``results``.
        pdf: whether to write figures also as PDF.

    Raises:
        InputError: a file cannot be written.
    """
    name = entries[0].cell.table
    paths = [results / "tables" / f"{name}.{kind}" for kind in ("md", "csv")]
    write_text(paths[0], markdown(entries) + "\n" + every_cell(entries))
    write_text(paths[1], to_csv(entries))
    wanted = entries[0].cell.about.figure and any(entry.measured for entry in entries)
    if wanted and depth_figure.by_depth(entries):
        paths += depth_figure.draw(entries, results / "figures" / name, pdf)
    return paths


def markdown(entries: Sequence[Entry]) -> str:
    """Formats one table for each block, then counts, legend, notes and comparisons seed by seed.

    A table of ours begins with its title, which states its conditions.
    """
    about = entries[0].cell.about
    parts = [f"**{about.title}**"] * about.ours
    for block in layout(entries):
        rows = ([label, *map(_in_markdown, row)] for label, row in block.rows.items())
        parts.append(table([block.name, *block.columns], rows))
    parts.append(f"**{counts(entries)}** {legend(entries)}")
    if remarks := notes(entries):
        parts.append("\n".join(f"- {note}" for note in remarks))
    if lines := comparisons(entries):
        parts += [COMPARED, table(lines[0], lines[1:])]
    return "\n\n".join(parts) + "\n"


def _in_markdown(entry: Entry | None) -> str:
    if entry is None:
        return ""
    ours = f"**{entry.ours}**" if entry.best else entry.ours
    beside = " ".join(filter(None, [entry.printed, entry.mark]))
    return f"{ours} ({beside})" if beside else ours


def every_cell(entries: Sequence[Entry]) -> str:
    """Formats all cells in a collapsed table with n, ±, difference, verdict and run.

    Cells that are not measured have their command instead of the run; the notes give the reason.
    """
    cells = table(DETAILS, (entry.details for entry in entries))
    return f"<details><summary>Every cell</summary>\n\n{cells}\n\n</details>\n"


def to_csv(entries: Sequence[Entry]) -> str:
    """Formats a CSV with one line for each cell: all its fields and the value of every seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([get(entry) for get in FIELDS.values()] for entry in entries)
    return file.getvalue()


def legend(entries: Sequence[Entry]) -> str:
    """Returns the legend: how to read the cells of a table."""
    return LEGEND_OURS if entries[0].cell.about.ours else LEGEND


def counts(entries: Sequence[Entry]) -> str:
    """``17 of 100 cells within, 3 off, 80 missing.``"""
    first = Verdict.MEASURED if entries[0].cell.about.ours else Verdict.WITHIN
    numbers = Counter(entry.verdict for entry in entries)
    rest = [f"{numbers[kind]} {kind}" for kind in Verdict if numbers[kind] and kind is not first]
    cells = "cell" if len(entries) == 1 else "cells"
    return f"{', '.join([f'{numbers[first]} of {len(entries)} {cells} {first}', *rest])}."


def comparisons(entries: Sequence[Entry]) -> list[list[str]]:
    """Compares rows with their baseline rows, and one row with the others; see ``COMPARED``.

    Only tables of ours and tuned tables are compared, since all their rows were treated alike.

    Returns:
        The head and one line for each row that can be compared; empty if there are none.
    """
    about = entries[0].cell.about
    if not (about.ours or about.tuned):
        return []
    blocks = layout(entries)
    lines = [
        [f"{block.name}: {line[0]}" if block.name else line[0], *line[1:]]
        for block in blocks
        for line in (*_with_baselines(block), *_with_others(block, about.compared))
    ]
    known = [line for line in lines if set(line[1:]) - {"", "missing"}]
    return [["", *blocks[0].columns], *known] if known else []


def _with_baselines(block: Block) -> Iterator[list[str]]:
    """Yields a line for every row that has a baseline row."""
    for label, row in block.rows.items():
        bases = [entry.baseline[0].label for entry in row if entry and entry.baseline]
        if bases:
            pairs = [(e.measured, e.baseline[1]) if e and e.baseline else None for e in row]
            yield [f"{label} against {bases[0]}", *map(_difference, pairs)]


def _with_others(block: Block, key: str | None) -> Iterator[list[str]]:
    """Yields a line for the row of a key and every other row, except baselines."""
    firsts = {label: next(filter(None, row)).cell for label, row in block.rows.items()}
    for own in (label for label, cell in firsts.items() if cell.key == key):
        for label, other in firsts.items():
            if other.key not in (key, firsts[own].baseline) and other.baseline != key:
                beside = zip(block.rows[own], block.rows[label])
                pairs = [(a.measured, b.measured) if a and b else None for a, b in beside]
                yield [f"{own} against {label}", *map(_difference, pairs)]


def notes(entries: Sequence[Entry]) -> list[str]:
    """Lists notes on cells, reasons for cells that were not run, and measurement conditions."""
    about = dict.fromkeys(entry.cell.about.note for entry in entries if entry.cell.about.note)
    remarks = _gathered(entries, lambda entry: entry.cell.note)
    skipped = [entry for entry in entries if entry.verdict is Verdict.NOT_RUN]
    reasons = _gathered(skipped, lambda entry: entry.cell.reason)
    if len(reasons) > 1 or len(skipped) < len(entries):  # then no reason holds for all cells
        number = Counter(entry.cell.reason for entry in skipped)
        reasons = {r: f"{number[r]} cells" if w == "all" else w for r, w in reasons.items()}
    return [
        *about,
        *(f"{where}: {note}" for note, where in remarks.items()),
        *(f"Not run ({where}): {reason}." for reason, where in reasons.items()),
        *_spread_in_points(entries),
        *_circumstances(entries),
    ]


def _difference(pair: tuple[Measured | None, Measured | None] | None) -> str:
    if pair is None:
        return ""
    return "missing" if None in pair else compare(*pair).text


def _spread_in_points(entries: Sequence[Entry]) -> list[str]:
    """Says how many cells are within if a ± taken as a fraction is taken as points instead."""
    measured = [entry.cell for entry in entries if entry.measured]
    read = [c.row for c in measured if c.printed_std not in (None, c.std)]
    if not read:
        return []
    pairs = [(replace(e.cell, std=e.cell.printed_std), e.measured) for e in entries]
    within = sum(entry.verdict is Verdict.WITHIN for entry in judge(pairs))
    rows = ", ".join(dict.fromkeys(read))
    return [
        f"With the ± of {rows} read as printed, in points: {within} of {len(entries)} cells within."
    ]


def _circumstances(entries: Sequence[Entry]) -> list[str]:
    """Lists weights and conditions of the measurements, as stated in the results."""
    measured = [(entry.cell, entry.measured) for entry in entries if entry.measured is not None]
    weights = dict.fromkeys(ours.weights for _, ours in measured if ours.weights)
    lines = []
    for text in weights:
        rows = dict.fromkeys(cell.label for cell, ours in measured if ours.weights == text)
        lines.append(f"Weights{_of(rows) if len(weights) > 1 else ''}: {text}.")
    for text in dict.fromkeys(ours.conditions for _, ours in measured if ours.conditions):
        cells = [cell for cell, ours in measured if ours.conditions == text]
        lines.append(f"Measured{_of(_shared([cell for cell, _ in measured], cells))}: {text}.")
    return lines


def _shared(every: Sequence[Cell], some: Sequence[Cell]) -> list[str]:
    """Names some cells of a table by their blocks, rows and columns, or counts them."""
    found = {
        name: list(dict.fromkeys(getattr(cell, name) for cell in some))
        for name in ("block", "row", "column", "reading")
    }
    own = [c for c in every if all(getattr(c, name) in found[name] for name in found)]
    if len(own) > len(some):
        return [f"{len(some)} of {len(every)} cells", *filter(None, found["reading"])]
    limited = [
        name
        for name in ("block", "row")
        if len(found[name]) < len({getattr(c, name) for c in every})
    ]
    return [value for name in (*limited, "column") for value in found[name]]


def _of(names: Iterable[str]) -> str:
    return f" ({', '.join(names)})"


def _gathered(entries: Sequence[Entry], text: Callable[[Entry], str | None]) -> dict[str, str]:
    """Maps each text to the name of its cells: the block, row, reading and column they share."""
    gathered = {}
    for note in dict.fromkeys(filter(None, map(text, entries))):
        cells = [entry.cell for entry in entries if text(entry) == note]
        places = ({getattr(c, k) for c in cells} for k in ("block", "row", "reading", "column"))
        where = [name for names in places if len(names) == 1 for name in names if name]
        gathered[note] = ", ".join(where) or "all"
    return gathered
