"""Writes a table as Markdown and CSV, its figure, and its copies in the documentation."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from oversmoothing.lab.report import depth_figures
from oversmoothing.lab.report.grid import Entry, layout
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.markers import show_in_pages
from oversmoothing.lab.report.remarks import COMPARED, comparisons, counts, legend, notes
from oversmoothing.lab.report.verdict import Verdict
from oversmoothing.lab.store.files import write_text

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
    """Writes a table, its figure and the pages that show it, and returns the paths of the files.

    A page shows a table between two markers, see ``markers.py``. Pages are ``results/README.md``
    and those in ``docs`` next to ``results``.

    Args:
        entries: all cells of a table.
        results: a folder such as ``results``.
        pdf: whether to write figures as PDF, too.

    Raises:
        InputError: a file cannot be written.
    """
    name = entries[0].cell.table
    paths = [results / "tables" / f"{name}.{kind}" for kind in ("md", "csv")]
    write_text(paths[0], markdown(entries) + "\n" + every_cell(entries))
    write_text(paths[1], to_csv(entries))
    if any(entry.measured for entry in entries) and depth_figures.by_depth(entries):
        paths += depth_figures.draw(entries, results / "figures" / name, pdf)
    return paths + show_in_pages(results, name, markdown(entries))


def markdown(entries: Sequence[Entry]) -> str:
    """Formats one table for each block, then counts, legend, notes and comparisons seed by seed.

    A table of ours begins with its title, which states its conditions.
    """
    about = entries[0].cell.about
    parts = [f"**{about.title}**"] * about.ours
    for block in layout(entries):
        rows = ([label, *map(_cell, row)] for label, row in block.rows.items())
        parts.append(table([block.name, *block.columns], rows))
    parts.append(f"**{counts(entries)}** {legend(entries)}")
    if remarks := notes(entries):
        parts.append("\n".join(f"- {note}" for note in remarks))
    if lines := comparisons(entries):
        parts += [COMPARED, table(lines[0], lines[1:])]
    return "\n\n".join(parts) + "\n"


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


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    ours = f"**{entry.ours}**" if entry.best else entry.ours
    beside = " ".join(filter(None, [entry.printed, entry.mark]))
    return f"{ours} ({beside})" if beside else ours
