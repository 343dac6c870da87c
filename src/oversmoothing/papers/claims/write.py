"""Writes all claims: ``claims.json``, one table, and the tables of the documentation by paper."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oversmoothing.papers.claims.claim import Verdict
from oversmoothing.report.markers import show_in_pages
from oversmoothing.store.files import write_text

HEAD = ["place", "claim", "measured here", "verdict", "command"]


def publish(entries: Sequence[Mapping[str, Any]], results: Path) -> list[Path]:
    """Writes the files and returns their paths.

    Args:
        entries: of ``claims.json``.
        results: a folder such as ``results``; pages are in ``docs`` next to it.
    """
    papers = list(dict.fromkeys(entry["paper"] for entry in entries))
    paths = [results / "claims.json", results / "tables/claims.md"]
    write_text(paths[0], json.dumps(list(entries), indent=1, ensure_ascii=False) + "\n")
    whole = table(["paper", *HEAD], [[entry["paper"], *_cells(entry)] for entry in entries])
    write_text(paths[1], whole)
    paths += show_in_pages(results, "claims-counts", counts(entries))
    for paper in papers:
        rows = [_cells(entry) for entry in entries if entry["paper"] == paper]
        marker = f"claims-{paper.lower().replace(' ', '-')}"
        paths += show_in_pages(results, marker, table(HEAD, rows))
    return list(dict.fromkeys(paths))


def counts(entries: Sequence[Mapping[str, Any]]) -> str:
    """How many claims of each paper have each verdict, as a table."""
    papers = dict.fromkeys(entry["paper"] for entry in entries)
    numbers = Counter((entry["paper"], entry["verdict"]) for entry in entries)
    rows = [[paper, *(str(numbers[paper, verdict]) for verdict in Verdict)] for paper in papers]
    total = Counter(entry["verdict"] for entry in entries)
    rows.append(["all", *(str(total[verdict]) for verdict in Verdict)])
    return table(["paper", *Verdict], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; | in a cell becomes /."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _cells(entry: Mapping[str, Any]) -> list[str]:
    """Place, claim, what was measured with the numbers, verdict, command."""
    found = f"{entry['measured']} ({entry['n']})" if entry["n"] else entry["measured"]
    verdict = entry["verdict"]
    run = verdict != Verdict.NOT_RUN
    measured = f"{entry['experiment']} {'Found' if run else 'Not run'}: {found}."
    shown = f"**{verdict}**" if run else verdict
    return [entry["place"], entry["statement"], measured, shown, f"`{entry['command']}`"]
