"""Keeps measured numbers, comparisons and tables in written pages up to date: ``make numbers``.

Pages are plain Markdown. ``docs/facts.yaml`` has quotes of each page and where they come from. A
quote is on its page exactly once; line breaks count as spaces, and ``{}`` stands for a number::

    docs/papers/centered.md:
      Centering reaches {} on Cora: table5/Cora/centered/L=16
      not more than PairNorm does: table5/*/centered/L=16 ~ table5/*/pairnorm/L=16
      '## What the paper claims': claims hem_order hem_units
      with a dropout of 0.3: by hand

Four kinds of sources, of which the first two may be several, with ``; `` between them:

- records, one for each number of the quote. ``table5/Cora/centered/L=16`` is mean ± std of a cell
  of ``tables/table5.csv`` by block, key of the row, column and, if any, reading
  (``cures/Cora/GCN/8/GCNII``: graph, network, layers, method); ``:mean``, ``:std`` or
  ``:published`` after it takes one of them. ``table5/Cora/*:within`` counts the cells with a
  verdict, or ``:measured``, and ``:n`` the seeds of the cell with the fewest.
  ``diagnose/deit.csv:cosine@model=plain&block=12`` is mean ± std of a column over some lines.
- conditions that must hold for the quoted words. The sides are cells or numbers: ``a > b`` and
  ``a < b`` (means), ``a >> b`` (significant by Welch's t-test at p < 0.05 over the number of
  pairs), ``a ~ b`` (no significant difference), ``a >~ b`` (not significantly lower). ``*`` in a
  key stands for any words; both sides have as many cells, in the same order. ``a is text``: a
  record, such as ``claims/NAME:verdict`` or ``claims/NAME`` (what was measured, in short).
- the table after the quote: a file (``tables/cures.md``, its first tables) or some claims.
- ``by hand``: a number that is not measured here, such as a constant. It is not rewritten.
"""

import os
import re
import statistics
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from omegaconf import OmegaConf
from yaml import YAMLError

from oversmoothing.errors import InputError, complain, reason_of
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.report.claims import brief, read_claims, short
from oversmoothing.lab.report.verdict import Measured, Verdict, differ
from oversmoothing.lab.store.files import read_csv, write_text
from oversmoothing.lab.store.files import results as results_folder

FACTS = "docs/facts.yaml"
BY_HAND = "by hand"
NUMBER = r"([+-]?\d+(?:\.\d+)?(?:\s±\s\d+(?:\.\d+)?)?|not measured)"
SEVERAL = re.compile(r"; (?=[^;,]*[/:]|\d)")  # a source begins with its table, or is a number
CONDITION = re.compile(r"(.+?) (is|<|>|>>|>~|~) (.+)")
TABLE = re.compile(r"(?:^\|.*\n(?:\n(?=\|))?)+", re.M)
PLACES = (("block", "key", "column", "reading"), ("graph", "network", "layers", "method"))
Quotes = dict[str, str]
Line = dict[str, str]  # of a CSV


def main(results: Path | None = None) -> int:
    """Rewrites the pages; prints the conditions that do not hold, and then returns 1."""
    results = results or results_folder()
    for path in update(results):
        print(path)
    wrong = [line for page in facts(results) for line in problems(results, page)]
    if wrong:
        complain(*wrong)
    return int(bool(wrong))


def update(results: Path) -> list[Path]:
    """Rewrites the numbers and tables in all pages; returns the pages that changed.

    Raises:
        InputError: a quote is not on its page exactly once, or names no result.
    """
    changed = []
    for page, quotes in facts(results).items():
        path = results.parent / page
        text = path.read_text("utf-8")
        places = [place for quote in quotes.items() for place in _places(text, *quote, path)]
        new = text
        for first, last, source in sorted(places, reverse=True):
            new = new[:first] + _text(results, source, path) + new[last:]
        if new != text:
            write_text(path, new)
            changed.append(path)
    return changed


def problems(results: Path, page: str) -> Iterator[str]:
    """Yields a line for each stale number or table, and for each condition that does not hold.

    Raises:
        InputError: as ``update``.
    """
    path = results.parent / page
    text = path.read_text("utf-8")
    for quote, source in facts(results)[page].items():
        for first, last, key in _places(text, quote, source, path):
            if " ".join(text[first:last].split()) != " ".join(_text(results, key, path).split()):
                yield f"{page}: {quote!r} is not what {key} says; run make numbers"
        for condition in SEVERAL.split(source) if CONDITION.fullmatch(source) else ():
            try:
                if not holds(results, condition):
                    yield f"{page}: {quote!r}: {condition} does not hold; write the sentence anew"
            except (KeyError, OSError, ValueError) as error:
                why = f"no result ({error}): adapt {FACTS}"
                raise InputError(f"{page}: {quote!r}: {condition}: {why}") from None


def facts(results: Path) -> dict[str, Quotes]:
    """Reads the quotes of every page.

    A folder that is not called ``results`` has no pages, since those beside it show other results.
    """
    path = results.parent / FACTS
    if results.resolve().name != "results" or not path.exists():
        return {}
    try:
        return OmegaConf.to_container(OmegaConf.load(path)) or {}
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise InputError(f"{path}: cannot be read ({reason_of(error)}); correct it") from None


def _places(text: str, quote: str, source: str, page: Path) -> list[tuple[int, int, str]]:
    """Returns start, end and source of everything that is rewritten at a quote."""
    parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in quote.split("{}")]
    found = [*re.finditer(NUMBER.join(parts), text)]
    if len(found) != 1:
        why = f"there {len(found)} times; quote more of it" if found else "not there"
        raise InputError(f"{page}: {quote!r} is {why}: adapt {FACTS}")
    if source == BY_HAND or CONDITION.fullmatch(source):
        return []
    if source.startswith(("claims ", "tables/")):
        table = TABLE.search(text, found[0].end())
        if table is None:
            raise InputError(f"{page}: {quote!r}: expected a table after it: adapt {FACTS}")
        return [(*table.span(), source)]
    keys = SEVERAL.split(source)
    if len(keys) != len(parts) - 1:
        raise InputError(f"{page}: {quote!r}: expected a record for each {{}}: adapt {FACTS}")
    return [(*found[0].span(i), key) for i, key in enumerate(keys, 1)]


def _text(results: Path, source: str, page: Path) -> str:
    """Returns the number or table of a source."""
    try:
        if source.startswith("tables/"):
            return TABLE.search((results / source).read_text("utf-8"))[0]
        if source.startswith("claims "):
            entries = {entry["name"]: entry for entry in read_claims(results)}
            whole = Path(os.path.relpath(results / "claims.md", page.parent)).as_posix()
            return short([entries[name] for name in source.split()[1:]], whole)
        return value(results, source)
    except (KeyError, OSError, ValueError) as error:
        raise InputError(f"{page}: {source} names no result ({error}): adapt {FACTS}") from None


def value(results: Path, key: str) -> str:
    """Returns the text of a record.

    Raises:
        KeyError, OSError, ValueError: there is no such table, cell, line or claim, or several cells
            have one number.
    """
    place, _, part = key.partition(":")
    name, _, cell = place.partition("/")
    if name == "claims":
        claim = {entry["name"]: entry for entry in read_claims(results)}[cell]
        return str(claim[part]) if part else brief(claim)
    if place.endswith(".csv"):
        column, _, wanted = part.partition("@")
        pairs = [word.split("=", 1) for word in wanted.split("&") if word]
        lines = [line for line in read_csv(results / place) if all(line[k] == v for k, v in pairs)]
        values = [float(line[column]) for line in lines]
        return _spread(statistics.mean(values), statistics.stdev(values) if values[1:] else None)
    found = _named(results, name, cell or "*")
    if part == "n":
        return str(min(int(line["n"]) for line in found if line["n"]))
    if part == "measured":
        return str(sum(line["mean"] != "" for line in found))
    if part in set(Verdict):
        return str(sum(line["verdict"] == part for line in found))
    [line] = found
    return _shown(line, part)


def _shown(line: Line, part: str) -> str:
    if part == "published":
        return line["corrected"] or line["published"]
    if not line["mean"]:
        return "not measured"
    if part:
        return _number(float(line[part]))
    return _spread(float(line["mean"]), float(line["std"]) if line["std"] else None)


def _spread(mean: float, std: float | None) -> str:
    """Returns ``mean ± std``: one decimal as for percent, two for numbers such as a cosine."""
    return _number(mean) + (f" ± {std:.{1 if abs(mean) >= 2 else 2}f}" if std is not None else "")


def _number(value: float) -> str:
    return f"{value:.{1 if abs(value) >= 2 else 2}f}"


def _named(results: Path, table: str, cell: str) -> list[Line]:
    """Returns the lines of a table for a cell; ``*`` in its name stands for any words."""
    lines = read_csv(results / f"tables/{table}.csv")
    place = next(place for place in PLACES if place[0] in lines[0])
    names = ["/".join(line[part] for part in place).removesuffix("/") for line in lines]
    found = [line for line, name in zip(lines, names) if fnmatchcase(name, cell)]
    if not found:
        raise KeyError(cell)
    return found


def holds(results: Path, condition: str) -> bool:
    """Whether a condition ``LEFT SIGN RIGHT`` holds."""
    if not (parsed := CONDITION.fullmatch(condition)):
        raise ValueError("expected LEFT SIGN RIGHT, the sign one of is > < >> ~ >~")
    left, sign, right = parsed.groups()
    if sign == "is":
        return value(results, left) == right
    if sign == "<":
        return holds(results, f"{right} > {left}")
    pairs = list(zip(_cells(results, left), _cells(results, right), strict=True))
    clear = [differ(a, b, len(pairs)) for a, b in pairs]
    higher = [a.mean > b.mean for a, b in pairs]
    if sign == "~":
        return not any(clear)
    if sign == ">~":
        return all(high or not sure for high, sure in zip(higher, clear))
    return all(higher) and (sign == ">" or all(clear))


def _cells(results: Path, side: str) -> list[Measured]:
    """Returns the measured cells that a side of a condition names, or the number that it is."""
    lines = [{"values": side, "seeds": "0"}]
    if not re.fullmatch(r"-?[\d.]+", side):
        table, _, cell = side.partition("/")
        lines = [line for line in _named(results, table, cell) if line["values"]]
    numbers = [(map(float, line["values"].split()), line["seeds"].split()) for line in lines]
    return [Measured(tuple(of), "", 0.0, tuple(map(int, seeds))) for of, seeds in numbers]


if __name__ == "__main__":
    run_script(main)
