"""A table as Markdown to read, CSV to compute with, LaTeX to print."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from oversmoothing.report import compared
from oversmoothing.report.grid import Block, Entry, layout
from oversmoothing.report.latex import latex
from oversmoothing.report.remarks import counts, legend, notes
from oversmoothing.report.verdict import Verdict
from oversmoothing.store.files import write_text

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
    "note": lambda e: e.cell.note,
    "weights": lambda e: e.measured and e.measured.weights,
    "conditions": lambda e: e.measured and e.measured.conditions,
}


def write_tables(entries: Sequence[Entry], stem: Path) -> list[Path]:
    """Writes ``stem``.md, .csv and .tex, comparisons to ``stem``_paired, and returns their paths.

    Raises:
        InputError: a file cannot be written.
    """
    texts = {
        ".md": markdown(entries) + "\n" + every_cell(entries),
        ".csv": to_csv(entries),
        ".tex": latex(entries),
    }
    if compared.rows(entries):
        texts["_paired.csv"] = compared.to_csv(entries)
        texts["_paired.jsonl"] = compared.to_jsonl(entries)
    return [_write(stem.with_name(stem.name + kind), text) for kind, text in texts.items()]


def markdown(entries: Sequence[Entry]) -> str:
    """One small table a block, then counts, legend, notes and what is compared seed by seed.

    A table of ours begins with its title, which says what its numbers are not.
    """
    about = entries[0].cell.about
    parts = [f"**{about.title}**"] * about.ours + [_block(block) for block in layout(entries)]
    parts.append(f"**{counts(entries)}** {legend(entries)}")
    if remarks := notes(entries):
        parts.append("\n".join(f"- {note}" for note in remarks))
    if rows := compared.rows(entries):
        head, *lines = map(_line, rows)
        parts += [compared.HEAD, "\n".join([head, _line(["---"] * len(rows[0])), *lines])]
    return "\n\n".join(parts) + "\n"


def every_cell(entries: Sequence[Entry]) -> str:
    """A line a cell, folded away: n, mean ± std, published ±, difference, verdict, run.

    Instead of the run its command, where it is not measured; why not is among the notes.
    """
    head = ["", "", "", "n", "measured", "published", "difference", "verdict", "run"]
    lines = [_line(head), _line(["---"] * len(head)), *(_line(entry.details) for entry in entries)]
    return "\n".join(["<details><summary>Every cell</summary>", "", *lines, "", "</details>", ""])


def to_csv(entries: Sequence[Entry]) -> str:
    """The long form: a line a cell with everything there is, every seed's value included."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([get(entry) for get in FIELDS.values()] for entry in entries)
    return file.getvalue()


def _write(path: Path, text: str) -> Path:
    write_text(path, text)
    return path


def _block(block: Block) -> str:
    head = [_line([block.name, *block.columns]), _line(["---"] * (1 + len(block.columns)))]
    rows = [_line([label, *map(_cell, row)]) for label, row in block.rows.items()]
    return "\n".join(head + rows)


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    ours = f"**{entry.ours}**" if entry.best else entry.ours
    beside = " ".join(filter(None, [entry.printed, entry.mark]))
    return f"{ours} ({beside})" if beside else ours


def _line(fields: Sequence[str]) -> str:
    return f"| {' | '.join(field.replace('|', '/') for field in fields)} |"
