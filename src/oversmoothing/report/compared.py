"""Rows of a table against their baseline rows, seed by seed, in every format."""

import csv
import io
import json
import math
from collections.abc import Sequence

from oversmoothing.report.grid import Entry, is_baseline, layout
from oversmoothing.report.paired import Comparison, compare

HEAD = (
    "Difference from the baseline row over the same seeds: mean [95 % confidence interval], p of a "
    "paired t-test (two-sided, not corrected for the number of comparisons)."
)


def pairs(entries: Sequence[Entry]) -> list[tuple[Entry, Entry, Comparison | None]]:
    """Every cell that has a baseline, that baseline, and how they compare once both are measured.

    Args:
        entries: a whole table; one with published values is judged by these, and has no pairs.
    """
    if not entries[0].cell.about.ours:
        return []
    return [
        (entry, base, _compared(entry, base))
        for entry in entries
        for base in entries
        if is_baseline(base.cell, entry.cell)
    ]


def rows(entries: Sequence[Entry]) -> list[list[str]]:
    """Head and one line a compared row; empty where nothing can be compared yet."""
    compared = {(e.label, e.cell.block, e.cell.column): (b, c) for e, b, c in pairs(entries)}
    if all(comparison is None for _, comparison in compared.values()):
        return []
    lines = []
    for block in layout(entries):
        for label in block.rows:
            found = [compared.get((label, block.name, column)) for column in block.columns]
            if base := next((b.label for b, _ in filter(None, found)), None):
                name = f"{block.name}: " if block.name else ""
                lines.append([f"{name}{label} against {base}", *map(_text, found)])
    return [["", *layout(entries)[0].columns], *lines]


def records(entries: Sequence[Entry]) -> list[dict[str, object]]:
    """A mapping a comparison, with every seed's difference; what CSV and JSON lines hold."""
    return [
        {
            **{key: getattr(e.cell, key) for key in ("table", "block", "key", "column", "metric")},
            "baseline": b.cell.key,
            "n": c.n,
            "mean": _finite(c.mean),
            **{key: _finite(getattr(c, key)) for key in ("low", "high", "p")},
            "seeds": list(c.seeds),
            "differences": [_finite(value) for value in c.differences],
            "run": e.measured.run_id,
            "baseline_run": b.measured.run_id,
        }
        for e, b, c in pairs(entries)
        if c is not None
    ]


def to_jsonl(entries: Sequence[Entry]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records(entries))


def to_csv(entries: Sequence[Entry]) -> str:
    """As the JSON lines; lists with a space between their items."""
    file, lines = io.StringIO(), records(entries)
    writer = csv.DictWriter(file, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    for line in lines:
        lists = {key: " ".join(map(repr, line[key])) for key in ("seeds", "differences")}
        writer.writerow(line | lists)
    return file.getvalue()


def _compared(entry: Entry, base: Entry) -> Comparison | None:
    if entry.measured is None or base.measured is None:
        return None
    return compare(entry.measured, base.measured)


def _text(found: tuple[Entry, Comparison | None] | None) -> str:
    if found is None:
        return ""
    return "missing" if found[1] is None else found[1].text


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
