"""Keeps measured numbers in written pages up to date.

A number in a sentence stands between ``<!--=KEY-->`` and ``<!--/-->``, which no page shows. KEY:

- ``table5/Cora/centered/L=16``: a cell of ``tables/table5.csv`` by block, key of the row, column
  and, if any, reading (``cures/Cora/GCN/8/GCNII``: graph, network, layers, method), as mean ± std;
  ``:mean``, ``:std``, ``:published`` or ``:difference`` after it takes one of them;
- ``table5/Cora/*:within``: how many such cells have a verdict, or ``:measured``; ``:n`` the seeds
  of the cell with the fewest;
- ``diagnose/deit.csv:cosine@model=plain&block=12``: mean ± std of a column over some lines;
- ``claims/NAME``: what was measured for a claim, in short; ``claims/NAME:verdict``.

A table of claims stands between ``<!-- claims NAME NAME …:start -->`` and ``<!-- claims:end -->``.
The sections "In short" of all papers' pages (``in_short.py``) stand between
``<!-- in-short:start -->`` and ``<!-- in-short:end -->``.
"""

import csv
import os
import re
import statistics
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.lab.report.claims import brief, read_claims, short
from oversmoothing.lab.report.in_short import bullets
from oversmoothing.lab.report.markers import pages_of
from oversmoothing.lab.report.verdict import Verdict
from oversmoothing.lab.store.files import write_text

FACT = re.compile(r"(<!--=(.+?)-->)[^<]*(<!--/-->)")
CLAIMS = re.compile(r"(<!-- claims ([\w ]+):start -->\n).*?(<!-- claims:end -->)", re.S)
IN_SHORT = re.compile(r"(<!-- in-short:start -->\n).*?(<!-- in-short:end -->)", re.S)
PLACES = (("block", "key", "column", "reading"), ("graph", "network", "layers", "method"))
Line = Mapping[str, str]


def update(results: Path) -> list[Path]:
    """Updates all pages and returns those that changed.

    Raises:
        InputError: a key does not name a result.
    """
    changed = []
    for page in pages_of(results):  # READMEs come last, since they repeat parts of the others
        old = page.read_text("utf-8")
        new = current(old, results, page)
        if new != old:
            write_text(page, new)
            changed.append(page)
    return changed


def current(text: str, results: Path, page: Path) -> str:
    """Returns the text of a page with all numbers and claims taken from the results."""

    def inserted(make: Callable[[str], str], found: re.Match[str]) -> str:
        try:
            return found[1] + make(found[2]) + found[3]
        except (KeyError, OSError, ValueError) as error:
            raise InputError(f"{page}: {found[2]} names no result ({error})") from None

    papers = Path(os.path.relpath(results.parent / "docs/papers", page.parent))
    whole = (papers / "claims.md").as_posix()
    text = FACT.sub(partial(inserted, partial(value, results)), text)
    text = IN_SHORT.sub(
        lambda found: found[1] + bullets(results, papers.as_posix()) + found[2], text
    )
    return CLAIMS.sub(partial(inserted, partial(_chosen, results, whole)), text)


def value(results: Path, key: str) -> str:
    """Returns the text for a key.

    Raises:
        KeyError, OSError, ValueError: there is no such table, cell, line or claim.
    """
    place, _, part = key.partition(":")
    name, _, cell = place.partition("/")
    if name == "claims":
        claim = {entry["name"]: entry for entry in read_claims(results)}[cell]
        return str(claim[part]) if part else brief(claim)
    if place.endswith(".csv"):
        column, _, wanted = part.partition("@")
        return _mean(_lines(results / place), column, wanted)
    found = [line for line in _lines(results / f"tables/{name}.csv") if fits(line, cell or "*")]
    if not found:
        raise KeyError(cell)
    if part == "measured":
        return str(sum(line["mean"] != "" for line in found))
    if part == "n":
        return str(min(int(line["n"]) for line in found if line["n"]))
    if part in set(Verdict):
        return str(sum(line["verdict"] == part for line in found))
    return _shown(found[0], part)


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fits(line: Line, cell: str) -> bool:
    """Whether a line of a table is the named cell; ``*`` in the name stands for any words."""
    parts = next(parts for parts in PLACES if parts[0] in line)
    return fnmatchcase("/".join(line[part] for part in parts).removesuffix("/"), cell)


def _shown(line: Line, part: str) -> str:
    if part == "published":
        return line["corrected"] or line["published"]
    if not line["mean"]:
        return "not measured"
    if part:
        return _number(float(line[part]), "+" if part == "difference" else "")
    return _with_spread(float(line["mean"]), float(line["std"]) if line["std"] else None)


def _mean(lines: list[dict[str, str]], column: str, wanted: str) -> str:
    """Returns mean ± std of a column over the lines that match, as ``model=plain&block=12``."""
    pairs = [word.split("=", 1) for word in wanted.split("&") if word]
    values = [float(line[column]) for line in lines if all(line[k] == v for k, v in pairs)]
    return _with_spread(statistics.mean(values), statistics.stdev(values) if values[1:] else None)


def _with_spread(mean: float, std: float | None) -> str:
    return _number(mean) + (f" ± {std:.{_digits(mean)}f}" if std is not None else "")


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign}.{_digits(value)}f}"


def _digits(value: float) -> int:
    """Returns the number of decimals: one as for percent, two for numbers such as a cosine."""
    return 1 if abs(value) >= 2 else 2


def _chosen(results: Path, page: str, names: str) -> str:
    entries = {entry["name"]: entry for entry in read_claims(results)}
    return short([entries[name] for name in names.split()], page)
