"""Measures what the papers claim, and writes the page of all claims with their verdicts.

    oversmoothing figure claims
    oversmoothing figure claims --only 'contranorm_prop*'

If data or results for a finding are missing, its recorded value is kept, a line says so, and the
exit code is 1.
"""

import argparse
import fnmatch
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError, complain
from oversmoothing.lab.launch.script import records_of
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.papers.claims import engine
from oversmoothing.lab.papers.claims.engine import OTHERS, OWN, SMALL, Claim
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.rules import Verdict
from oversmoothing.lab.report.claims import full, read_claims
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.numbers import update
from oversmoothing.lab.store.files import alone, write_text

Entry = dict[str, Any]
ABOUT = ("name", "paper", "place", "statement", "experiment", "scale")
FOUND = ("measured", "n", "verdict")
HEAD = """# What the papers claim

Written by `make claims`. [What the verdicts mean](../docs/guides/reproduce.md#claims).
"""
NOTES = {
    OTHERS: "Single claims of papers whose other results are not part of this repository.\n",
    OWN: "Questions that the papers leave open, and other readings of their statements.\n",
}


def main(argv: list[str]) -> int:
    """Writes ``claims.json`` and ``claims.md``; returns 1 if a recorded value was kept."""
    options = _options(argv)
    measured = chosen(claims(), options.only, options.recorded)
    folder = records_of(options.target)
    evidence, earlier, new = Evidence(folder), recorded(folder), dict[str, Entry]()
    again = [claim for claim in claims() if claim in measured or claim.name not in earlier]
    for claim in again:
        try:
            new[claim.name] = found = findings(claim, evidence, earlier.get(claim.name))
            print(f"{claim.name}: {found['verdict']}; {found['measured']}", flush=True)
        except InputError as error:
            kept = f"{claim.name}: not measured, a recorded value is kept"
            complain(*(f"{kept}: {line}" for line in error.lines))
    with alone(options.target / "claims.json"):
        known = recorded(folder) | new  # another process may have measured other claims
        entries = [entry(claim, known[claim.name]) for claim in claims() if claim.name in known]
        print(*publish(entries, options.target), sep="\n")
    return int(len(new) < len(again))


@cache
def claims() -> list[Claim]:
    return engine.load(RESULTS / "claims.yaml")


def chosen(claims: Sequence[Claim], only: Iterable[str], recorded: bool = False) -> list[Claim]:
    """Returns the claims whose name or paper fits one of some patterns; without one, all.

    Args:
        recorded: only claims that are judged by recorded results.

    Raises:
        InputError: a pattern matches no claim.
    """
    found = []
    for pattern in only or ["*"]:
        fits = [c for c in claims if any(fnmatch.fnmatch(n, pattern) for n in (c.name, c.paper))]
        if not fits:
            raise InputError(f"--only {pattern}: no claim; results/claims.yaml has their names")
        found += fits
    return [claim for claim in found if not (recorded and claim.compute)]


def recorded(folder: Path) -> dict[str, Entry]:
    """Reads the entries of ``claims.json`` by name; empty if there is no file."""
    return {entry["name"]: entry for entry in read_claims(folder)}


def findings(claim: Claim, evidence: Evidence, old: Entry | None) -> Entry:
    """Measures a claim.

    Raises:
        InputError: data are damaged, or are missing although the old entry has a measurement.
    """
    finding = claim.finding(evidence)
    lost = not claim.not_run and finding.verdict is Verdict.NOT_RUN
    if lost and old is not None and old["verdict"] != Verdict.NOT_RUN:
        raise NotRecordedError(finding.measured)
    return {"measured": finding.measured, "n": finding.n, "verdict": str(finding.verdict)}


def entry(claim: Claim, found: Mapping[str, str]) -> Entry:
    """Returns the entry of a claim for ``claims.json``."""
    told = {key: getattr(claim, key) for key in ABOUT}
    command = claim.command or f"oversmoothing figure claims --only {claim.name}"
    return told | {key: found[key] for key in FOUND} | {"command": command}


def publish(entries: Sequence[Entry], results: Path) -> list[Path]:
    """Writes ``claims.json``, ``claims.md`` with a table for each paper, and the pages.

    Args:
        entries: of ``claims.json``.
        results: a folder such as ``results``; pages are in ``docs`` next to it.

    Returns:
        The paths of the files.
    """
    parts = [HEAD, counts(entries)]
    for paper in dict.fromkeys(entry["paper"] for entry in entries):
        of_paper = [entry for entry in entries if entry["paper"] == paper]
        parts += [f"\n## {paper}\n", *filter(None, [NOTES.get(paper)]), full(of_paper).rstrip()]
    paths = [results / "claims.json", results / "claims.md"]
    write_text(paths[0], json.dumps(list(entries), indent=1, ensure_ascii=False) + "\n")
    write_text(paths[1], "\n".join(parts) + "\n")
    return [*paths, *update(results)]


def counts(entries: Sequence[Entry]) -> str:
    """Returns a table of the number of claims by paper and verdict, with a sum of the papers."""
    groups: dict[str, list[Entry]] = {}
    for one in entries:
        groups.setdefault(one["paper"], []).append(one)
    apart = {name: groups.pop(name) for name in NOTES if name in groups}
    summed = [one for group in groups.values() for one in group]
    small = [one for one in summed if one["scale"]]
    sums = {"the papers above": summed, f"of these, by {SMALL}": small}
    rows = []
    for name, group in (groups | sums | apart).items():
        numbers = Counter(entry["verdict"] for entry in group)
        link = name if name in sums else f"[{name}](#{name.lower().replace(' ', '-')})"
        rows.append([link, *(str(numbers[verdict]) for verdict in Verdict)])
    head = [verdict.removeprefix("holds ") for verdict in Verdict]  # short, for phones
    return table(["paper", *head], rows)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = figure_parser(__doc__, pdf=False)
    parser.add_argument("--only", nargs="+", default=[], help="names of claims or papers, with *")
    parser.add_argument(
        "--recorded", action="store_true", help="only claims that recorded results answer"
    )
    return parser.parse_args(argv)
