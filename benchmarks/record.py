"""The record of all measurements, ``bench.json``, and its tables, ``bench/NAME.md``.

A benchmark makes a :func:`row` for each measurement and passes all rows to :func:`save`. Rows of
other commands do not change. A row contains its command, machine and commit. With ``--publish``
they are kept below results/. Rows measured on a GPU are kept apart from those of a CPU, under the
name ``NAME_gpu``.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from oversmoothing.lab.launch.script import add_publish
from oversmoothing.lab.report import markdown
from oversmoothing.lab.store.environment import environment
from oversmoothing.lab.store.files import write_text

RESULTS = Path(__file__).parents[1] / "results"
FILE = "bench.json"
GPU = "_gpu"  # ends the name of what a GPU measured
Row = dict[str, Any]


def row(
    work: str,
    measure: str,
    ours: Sequence[float],
    *,
    peer: str | None = None,
    theirs: Sequence[float] | None = None,
    overhead: bool = False,
    goal: float | None = None,
    note: str = "",
) -> Row:
    """Returns one measurement, alone or compared with a peer.

    Args:
        work: what is done, such as "GCN with LayerNorm, 8 layers".
        measure: what is measured and its unit, such as "s per epoch of 5 seeds" or "MB".
        ours: values, one per round.
        peer: the code that ``theirs`` was measured with.
        theirs: values of the same rounds. The ratio of the row is the median of theirs / ours.
        overhead: the ratio is ours / theirs instead, as for a part that adds to the peer's work.
        goal: smallest ratio to reach (with ``overhead``: largest). Without a peer: upper limit of
            ours.
        note: one sentence, such as the lower bound if a goal is missed.
    """
    made: Row = {"work": work, "measure": measure, "ours": _spread(ours)}
    if theirs is not None:
        pairs = zip(ours, theirs, strict=True)
        made |= {"peer": peer, "theirs": _spread(theirs)}
        made["ratio"] = _spread([a / b if overhead else b / a for a, b in pairs])
        made["overhead"] = overhead
    if goal is not None:
        made |= {"goal": goal, "met": _met(made, goal)}
    return made | ({"note": note} if note else {})


def parser_of(doc: str) -> argparse.ArgumentParser:
    """Returns the parser of a benchmark, with the first line of its docstring as help."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    add_publish(parser)
    return parser


def target() -> Path:
    """Returns the folder to write to, which the command line of the benchmark chooses."""
    return parser_of("").parse_known_args()[0].target


def save(rows: Sequence[Row], name: str | None = None) -> None:
    """Prints rows as a table and writes them into ``bench.json`` and ``bench/NAME.md``.

    A row replaces an earlier one of the same benchmark, work, measure and peer.

    Args:
        name: of the benchmark; default: that of the script.
    """
    name = (name or Path(sys.argv[0]).stem) + (GPU if torch.cuda.is_initialized() else "")
    folder, origin = target(), _origin()
    folder.mkdir(exist_ok=True)
    with FileLock(folder / ".bench.lock"):
        every = load(folder)
        kept = {_key(old): old for old in every.get(name, [])}
        kept |= {_key(new): new | origin for new in rows}
        every = dict(sorted((every | {name: list(kept.values())}).items()))
        write_text(folder / FILE, json.dumps(every, indent=1, ensure_ascii=False) + "\n")
        pages = show(folder, {name: every[name]})
    print(table([new | origin for new in rows]), folder / FILE, *pages, sep="\n", flush=True)


def load(folder: Path = RESULTS) -> dict[str, list[Row]]:
    """Reads all rows by benchmark."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def show(folder: Path, some: dict[str, list[Row]]) -> list[Path]:
    """Writes tables of benchmarks, and returns their files."""
    pages = {folder / f"bench/{name}.md": rows for name, rows in some.items()}
    for page, rows in pages.items():
        write_text(page, f"# {page.stem}\n\n{table(rows).rstrip()}\n")
    return list(pages)


def table(rows: Sequence[Row]) -> str:
    """Formats rows as Markdown, with the commands that measured them.

    If nothing is compared, each work has one line, with a column for each measure.
    """
    compared = any(key in row for row in rows for key in ("theirs", "goal"))
    shown = _by_row(rows) if compared else _by_measure(rows)
    notes = [f"- {'; '.join(places)}: {note}" for note, places in _notes(rows).items()]
    origins = list(dict.fromkeys(_caption(row) for row in rows))
    return "\n".join([shown, "", *([*notes, ""] if notes else []), *origins])


def _by_row(rows: Sequence[Row]) -> str:
    head = ["work", "measure", "ours", "peer", "theirs", "ratio", "goal"]
    used = [i for i, key in enumerate(head) if i < 3 or any(row.get(key) for row in rows)]
    return markdown.table(
        [head[i] for i in used], [[line[i] for i in used] for line in map(_cells, rows)]
    )


def _by_measure(rows: Sequence[Row]) -> str:
    works, measures = (list(dict.fromkeys(row[key] for row in rows)) for key in ("work", "measure"))
    found = {(row["work"], row["measure"]): _text(row["ours"]) for row in rows}
    lines = [[work, *(found.get((work, name), "") for name in measures)] for work in works]
    return markdown.table(["work", *measures], lines)


def _notes(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Maps notes to their work and measure; with several peers, only the first note is kept."""
    first: dict[str, str] = {}
    for row in (row for row in rows if "note" in row):
        first.setdefault(f"{row['work']}, {row['measure']}", row["note"])
    places: dict[str, list[str]] = {}
    for place, note in first.items():
        places.setdefault(note, []).append(place)
    return places


def goals(every: dict[str, list[Row]]) -> str:
    """Formats all rows with a goal as Markdown."""
    lines = []
    for name, row in ((name, row) for name, rows in every.items() for row in rows if "goal" in row):
        work, measure, ours, peer, _, ratio, goal = _cells(row)
        place = ", on a GPU" if name.endswith(GPU) else ""
        lines.append([work + place, measure, peer, ratio or ours, goal])
    return markdown.table(["work", "measure", "beside", "measured", "goal"], lines)


def _cells(row: Row) -> list[str]:
    texts = [row["work"], row["measure"], _text(row["ours"])]
    if "theirs" not in row:
        return [*texts, "", "", "", _goal(row)]
    sign = "ours is {}× theirs" if row["overhead"] else "{}×"
    return [*texts, row["peer"], _text(row["theirs"]), sign.format(_text(row["ratio"])), _goal(row)]


def _goal(row: Row) -> str:
    if "goal" not in row:
        return ""
    at_most = "theirs" not in row or row["overhead"]
    return f"{'≤' if at_most else '≥'} {row['goal']:g}: {'met' if row['met'] else 'missed'}"


def _caption(row: Row) -> str:
    """Returns the command, once for all rows that it measured."""
    dirty = ", with changes" if row["dirty"] else ""
    where = f"{row['machine']}, {row['threads']} threads".replace(" 1 threads", " 1 thread")
    return f"`{row['command']}` ({row['date']}, {where}, commit {row['git']}{dirty})  "


def _met(row: Row, goal: float) -> bool:
    if "theirs" not in row:
        return row["ours"]["median"] <= goal
    ratio = row["ratio"]["median"]
    return ratio <= goal if row["overhead"] else ratio >= goal


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Returns median, smallest and largest value, to four digits, and the number of values."""
    pick = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    return {name: float(f"{value:.4g}") for name, value in pick.items()} | {"n": len(values)}


def _text(spread: dict[str, float]) -> str:
    middle, low, high = (_number(spread[key]) for key in ("median", "low", "high"))
    return middle if low == high else f"{middle} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _key(row: Row) -> tuple[str, ...]:
    return row["work"], row["measure"], row.get("peer") or ""


def _origin() -> Row:
    """Describes the environment of the running process."""
    found = environment("auto" if torch.cuda.is_initialized() else "cpu")
    script = Path(sys.argv[0])
    place = script.resolve().relative_to(RESULTS.parent)
    threads = os.environ.get("OMP_NUM_THREADS")
    given = [word for word in sys.argv[1:] if word != "--publish"]
    words = [*([f"OMP_NUM_THREADS={threads}"] if threads else []), "python", place.as_posix()]
    return {
        "command": shlex.join([*words, *map(_public, given)]),
        "git": found["git"],
        "dirty": found["dirty"],
        "machine": _machine(found["device"]),
        "threads": torch.get_num_threads(),
        "torch": found["torch"],
        "date": datetime.date.today().isoformat(),
    }


def _public(word: str) -> str:
    """Shortens an absolute path in the command to its name, since paths differ by machine."""
    return Path(word).name if Path(word).is_absolute() else word


def _machine(device: str) -> str:
    """Returns the name of the GPU or of the processor."""
    if device != "cpu":
        return device
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"
