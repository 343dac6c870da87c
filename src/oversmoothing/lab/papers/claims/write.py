"""Writes all claims: ``claims.json``, one table, and the tables of the documentation by paper."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oversmoothing.lab.papers.claims.claim import OWN, SMALL, Verdict
from oversmoothing.lab.report import facts
from oversmoothing.lab.report.claims import details, full, verdict
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.markers import show_in_pages
from oversmoothing.lab.store.files import write_text

HEAD = ["paper", "place", "claim", "verdict", "measured here", "command"]


def publish(entries: Sequence[Mapping[str, Any]], results: Path) -> list[Path]:
    """Writes the files and returns their paths.

    Args:
        entries: of ``claims.json``.
        results: a folder such as ``results``; pages are in ``docs`` next to it.
    """
    papers = list(dict.fromkeys(entry["paper"] for entry in entries))
    paths = [results / "claims.json", results / "tables/claims.md"]
    write_text(paths[0], json.dumps(list(entries), indent=1, ensure_ascii=False) + "\n")
    write_text(paths[1], table(HEAD, map(_cells, entries)) + "\n")
    paths += show_in_pages(results, "claims-counts", counts(entries))
    for paper in papers:
        marker = f"claims-{paper.lower().replace(' ', '-')}"
        paths += show_in_pages(results, marker, full([e for e in entries if e["paper"] == paper]))
    paths += facts.update(results)
    return list(dict.fromkeys(paths))


def counts(entries: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table of the number of claims by paper and verdict; our questions come last."""
    papers = dict.fromkeys(entry["paper"] for entry in entries)
    numbers = Counter((entry["paper"], entry["verdict"]) for entry in entries)
    rows = [[paper, *(str(numbers[paper, verdict]) for verdict in Verdict)] for paper in papers]
    total = Counter(entry["verdict"] for entry in entries if entry["paper"] != OWN)
    own = rows.pop() if rows[-1][0] == OWN else None
    rows.append(["all papers", *(str(total[verdict]) for verdict in Verdict)])
    small = Counter(e["verdict"] for e in entries if e["scale"] and e["paper"] != OWN)
    rows.append([f"of these, by {SMALL}", *(str(small[verdict]) for verdict in Verdict)])
    rows += [own] if own else []
    head = [verdict.removeprefix("holds ") for verdict in Verdict]  # short, for phones
    return table(["paper", *head], rows)


def _cells(entry: Mapping[str, Any]) -> list[str]:
    told = [entry[key] for key in ("paper", "place", "statement")]
    return [*told, verdict(entry), details(entry), f"`{entry['command']}`"]
