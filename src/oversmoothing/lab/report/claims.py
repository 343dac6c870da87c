"""Formats the claims of papers: the entries of ``claims.json`` as rows of tables."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from oversmoothing.lab.report.markdown import table

Entry = Mapping[str, str]
ORDER = ("holds", "holds in part", "contradicted", "not reproduced", "not decided", "not run")
HEAD = ["claim", "verdict", "measured here"]
COUNT = re.compile(r"[^:;]*\d of \d[^:;]*?(?=:|;| \([^)]{40})")  # 3 of 8 cells, before a list
SHORT = 100  # characters


def read_claims(results: Path) -> list[dict[str, str]]:
    """Reads the entries of ``claims.json``; empty if there is no file."""
    path = results / "claims.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def brief(entry: Entry) -> str:
    """Returns what was measured; long texts are cut to a count (``2 of 9``) or the first part."""
    text: str = entry["measured"]
    if len(text) <= SHORT:
        return text
    count = COUNT.match(text)
    first = count[0] if count else text.partition(";")[0]
    return first if first == text else f"{first} …"


def details(entry: Entry, measured: str | None = None) -> str:
    """Returns the experiment and everything that was measured.

    Args:
        entry: the claim.
        measured: replaces the text of all that was measured; may be empty.
    """
    found = entry["measured"] if measured is None else measured
    n = f"({entry['n']})" if entry["n"] else ""
    if not found:
        return f"{entry['experiment']} {n}".strip()
    kind = "Found" if entry["n"] else "Not run"
    return f"{entry['experiment']} {kind}: {found}{f' {n}' if n else ''}."


def full(entries: Iterable[Entry]) -> str:
    """Formats claims with collapsed details; each has its name as an anchor."""
    return table(HEAD, map(_full, entries)) + "\n"


def _full(entry: Entry) -> list[str]:
    claim = f'<a id="{entry["name"]}"></a>{entry["statement"]}<br><small>{entry["place"]}</small>'
    rest = "" if brief(entry) == entry["measured"] else None
    more = f"{details(entry, rest)}<br>`{entry['command']}`"
    folded = f"<details><summary>details</summary>{more}</details>"
    return [claim, _verdict(entry), f"{brief(entry)} {folded}"]


def short(entries: Sequence[Entry], page: str) -> str:
    """Formats claims in one line each, with links to their details.

    Args:
        page: the page of all claims, as a relative link.
    """
    several = len({entry["paper"] for entry in entries}) > 1
    return table(HEAD, [_short(entry, page, several) for entry in entries]) + "\n"


def _short(entry: Entry, page: str, several: bool) -> list[str]:
    place = f"{entry['paper']}, {entry['place']}" if several else entry["place"]
    text = re.sub(r"([\[\]])", r"\\\1", entry["statement"])  # brackets must not end the link
    claim = f"[{text}]({page}#{entry['name']})<br><small>{place}</small>"
    experiment = entry["experiment"]
    if len(experiment) > 3 * SHORT:  # a proof, for example
        experiment = f"{experiment.partition('. ')[0]} …"
    return [claim, _verdict(entry), f"{brief(entry)}<br><small>{experiment}</small>"]


def verdict(entry: Entry) -> str:
    """Returns the verdict; runs far smaller than the paper's are marked ``(small runs)``."""
    measured_small = entry.get("scale") and entry["n"]
    return f"{entry['verdict']} ({entry['scale']})" if measured_small else entry["verdict"]


def _verdict(entry: Entry) -> str:
    return f"**{verdict(entry)}**" if entry["n"] else verdict(entry)
