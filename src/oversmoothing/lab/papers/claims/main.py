"""Measures what the papers claim, and writes the page of all claims with their verdicts.

    python scripts/figure.py claims
    python scripts/figure.py claims --only 'contranorm_prop*'

If data or results for a finding are missing, its recorded value is kept.
"""

import argparse
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.flags import records_of
from oversmoothing.lab.papers import figure_parser
from oversmoothing.lab.papers.claims import (
    centered_graphs,
    centered_graphs_data,
    centered_limits,
    centered_overnight,
    centered_printed,
    centered_ranks,
    centered_theory,
    centered_tuned,
    centered_voc,
    contranorm_depth,
    contranorm_graphs,
    contranorm_maps,
    contranorm_readings,
    contranorm_tables,
    contranorm_theory,
    cost,
    external,
    external_unit,
    hemnet_fig3,
    hemnet_iterations,
    hemnet_steps,
    hemnet_tables,
)
from oversmoothing.lab.papers.claims.claim import OWN, Claim, Verdict
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.claims.write import publish
from oversmoothing.lab.report.claims import read_claims
from oversmoothing.lab.store.files import writing

PAGES = (
    centered_theory,
    centered_limits,
    centered_ranks,
    centered_printed,
    centered_voc,
    centered_overnight,
    centered_graphs,
    centered_graphs_data,
    centered_tuned,
    contranorm_theory,
    contranorm_maps,
    contranorm_depth,
    contranorm_tables,
    contranorm_graphs,
    contranorm_readings,
    hemnet_steps,
    hemnet_fig3,
    hemnet_iterations,
    hemnet_tables,
    external_unit,
    external,
    cost,
)
PAPERS = ("Centered Self-Attention", "ContraNorm", "HEMNet", "External Attention", OWN)
CLAIMS: Sequence[Claim] = sorted(
    (claim for page in PAGES for claim in page.CLAIMS), key=lambda claim: PAPERS.index(claim.paper)
)
Entry = dict[str, Any]
ABOUT = ("name", "paper", "place", "statement", "experiment", "scale")
FOUND = ("measured", "n", "verdict")


def main(argv: list[str]) -> int:
    """Writes ``claims.json``, ``tables/claims.md`` and the page of the documentation."""
    options = _options(argv)
    measured = chosen(CLAIMS, options.only, options.recorded)
    folder = records_of(options.target)
    evidence, earlier = Evidence(folder), recorded(folder)
    entries = []
    for claim in CLAIMS:
        old = earlier.get(claim.name)
        again = claim in measured or old is None
        found = findings(claim, evidence, old) if again or old is None else old
        entries.append(entry(claim, found))
        if again:
            print(f"{claim.name}: {found['verdict']}; {found['measured']}", flush=True)
    with writing(options.target):
        (options.target / "tables").mkdir(parents=True, exist_ok=True)
    print(*publish(entries, options.target), sep="\n")
    return 0


def chosen(claims: Sequence[Claim], only: Iterable[str], recorded: bool = False) -> list[Claim]:
    """The claims whose name or paper fits one of some patterns; without one, all.

    Args:
        recorded: only claims that are computed from recorded results.

    Raises:
        InputError: a pattern matches no claim.
    """
    found = []
    for pattern in only or ["*"]:
        fits = [c for c in claims if any(fnmatch.fnmatch(n, pattern) for n in (c.name, c.paper))]
        if not fits:
            raise InputError(f"--only {pattern}: no claim; results/claims.json has their names")
        found += fits
    return [claim for claim in found if claim.cheap or not recorded]


def recorded(folder: Path) -> dict[str, Entry]:
    """Reads the entries of ``claims.json`` by name; empty if there is no file."""
    return {entry["name"]: entry for entry in read_claims(folder)}


def findings(claim: Claim, evidence: Evidence, old: Entry | None) -> Entry:
    """Measures a claim; if data are missing, the measurement of the old entry is kept."""
    finding = claim.finding(evidence)
    lost = claim.measure is not None and finding.verdict is Verdict.NOT_RUN
    if lost and old is not None and old["verdict"] != Verdict.NOT_RUN:
        return old
    return {"measured": finding.measured, "n": finding.n, "verdict": str(finding.verdict)}


def entry(claim: Claim, found: Mapping[str, str]) -> Entry:
    """Returns the entry of a claim for ``claims.json``."""
    told = {key: getattr(claim, key) for key in ABOUT}
    command = claim.command or f"make claims ONLY={claim.name}"
    return told | {key: found[key] for key in FOUND} | {"command": command}


def _options(argv: list[str]) -> argparse.Namespace:
    parser = figure_parser(__name__, __doc__, pdf=False, folder=True)
    parser.add_argument("--only", nargs="*", default=[], help="names of claims or papers, with *")
    parser.add_argument(
        "--recorded", action="store_true", help="only claims that recorded results answer"
    )
    return parser.parse_args(argv)
