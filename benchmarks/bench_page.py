"""The record of measurements, results/bench/*.csv, and the pages that show it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from oversmoothing.lab.report import markdown
from oversmoothing.lab.store.files import read_csv

SPREAD = ("", "_low", "_high")  # median, smallest, largest
COLUMNS = (
    *("case", "place", "work", "measure", "ours", "ours_low", "ours_high", "n"),
    *("peer", "theirs", "theirs_low", "theirs_high", "ratio", "ratio_low", "ratio_high"),
    *("ratio_of", "note", "command", "commit", "device", "threads", "torch", "date"),
)
Row = dict[str, str]


def load(path: Path) -> list[Row]:
    """Reads a record; empty if there is no file."""
    return read_csv(path) if path.exists() else []


def write_page(folder: Path, theme: str, titles: Mapping[str, str]) -> Path:
    """Writes the page of a theme: a section for each case and kind of device.

    Args:
        titles: what each case measures, by its name.
    """
    lines = load(folder / f"{theme}.csv")
    parts = [f"# Time and memory: {theme}", INTRODUCTION.format(theme=theme)]
    for name, place in dict.fromkeys((line["case"], line["place"]) for line in lines):
        own = [line for line in lines if (line["case"], line["place"]) == (name, place)]
        about = titles.get(name) or _gone(name)
        end = " on a GPU" if place == "cuda" else ""
        parts += [f"## {name}{end}", about, table(own), _notes(own), _origins(own)]
    page = folder / f"{theme}.md"
    page.write_text("\n\n".join(filter(None, parts)) + "\n", encoding="utf-8")
    return page


def _gone(name: str) -> str:
    """Says which commit still has a case, and what it measured where the rows do not tell."""
    commit = next((commit for commit, names in GONE.items() if name in names.split()), None)
    has = f"This case is no longer in `benchmarks/`; commit `{commit}` has it." if commit else ""
    return f"{MEASURED.get(name, '')} {has}".strip()


GONE = {  # commit -> cases that it still has
    "d823282e": "par paper_steps",
    "be1f76cd": "contranorm energy generator loader minibatch paper_sizes part_means search "
    "seg_step units",
    "a0845598": "launches startup",
    "f38b8018": "compile fig1 optimizer",
    "84abacbf": "memory",
}
MEASURED = {  # what these cases measured, where their rows do not tell
    "part_means": "Error of the mean that centered aggregation uses on parts of a graph: the "
    "median of |used − exact| / |exact| over every fifth step.",
    "units": "Units and layers beside official code, with the same weights and inputs, forward and "
    "backward. The update of EMANet's bases is left out on both sides.",
}
INTRODUCTION = """\
`python benchmarks/bench.py CASE` measures a section again and writes this page from
[{theme}.csv]({theme}.csv). A value is the median of several rounds, in which the compared forms
take turns, with the smallest and largest value in parentheses. On a CPU, times are those that the
process computed. A ratio above 1 means that this package is faster or smaller, except where it
reads *ours is … theirs*. Below each table: the command as it was at its commit, date, device,
threads and commit."""


def table(rows: Sequence[Row]) -> str:
    """Formats rows as Markdown; if nothing is compared, with a column for each measure."""
    if any(each["peer"] for each in rows):
        head = ("work", "measure", "ours", "peer", "theirs", "ratio")
        return markdown.table(head, [_cells(each) for each in rows])
    works, measures = (list(dict.fromkeys(row[key] for row in rows)) for key in ("work", "measure"))
    found = {(each["work"], each["measure"]): _text(each, "ours") for each in rows}
    lines = [[work, *(found.get((work, name), "") for name in measures)] for work in works]
    return markdown.table(["work", *measures], lines)


def _cells(each: Row) -> list[str]:
    ratio = _text(each, "ratio") and f"{_text(each, 'ratio')}×"
    ratio = f"ours is {ratio} theirs" if each["ratio_of"] == "ours / theirs" else ratio
    words = (each["work"], each["measure"], _text(each, "ours"), each["peer"])
    return [*words, _text(each, "theirs"), ratio]


def _text(each: Row, name: str) -> str:
    if not each[name]:
        return ""
    middle, low, high = (_number(float(each[name + end])) for end in SPREAD)
    return middle if low == high else f"{middle} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _notes(rows: Sequence[Row]) -> str:
    """Lists every note with what it is about; of several peers the first has it."""
    places: dict[str, dict[str, None]] = {}
    for each in rows:
        places.setdefault(each["note"], {})[f"{each['work']}, {each['measure']}"] = None
    return "\n".join(f"- {'; '.join(about)}: {note}" for note, about in places.items() if note)


def _origins(rows: Sequence[Row]) -> str:
    found = (
        f"`{each['command']}` ({each['date']}, {each['device']}, {each['threads']} "
        f"thread{'s' * (each['threads'] != '1')}, commit {each['commit']})"
        for each in rows
    )
    return "  \n".join(dict.fromkeys(found))
