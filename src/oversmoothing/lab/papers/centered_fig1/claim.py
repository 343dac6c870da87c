"""Checks the claim of Figure 1, "rank 1 for every γ > −1 and for no γ ≤ −1", in each panel."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.papers.centered_fig1.panels import Panel
from oversmoothing.lab.store.files import write_text

HEADER = ("block", "weights", "seed", "gamma", "depth", "rank", "first_depth_of_rank_1",
          "how_the_claim_fails")  # fmt: skip


def write_claim(panels: Sequence[Panel], folder: Path) -> list[Path]:
    """Writes ``fig1_claim.md``, one line per panel, and ``fig1_claim.csv``, one per failing γ."""
    paths = [folder / "fig1_claim.md", folder / "fig1_claim.csv"]
    write_text(paths[0], claim_table(panels))
    rows = [row.values() for panel in panels for row in failures(panel)]
    write_csv(paths[1], HEADER, rows)
    return paths


def claim_table(panels: Sequence[Panel]) -> str:
    """Returns a Markdown table of the γ at which the claim fails, for each panel and seed.

    It shows the final rank for γ > −1, and the first depth with rank 1 for γ ≤ −1. Neighbouring γ
    are joined to ranges.
    """
    lines = [
        "| block | weights | seed | depth | claim "
        "| γ > −1, yet the rank stays above 1 (final rank) "
        "| γ ≤ −1, yet the rank falls to 1 (first at depth) |",
        "|---|---|---|---|---|---|---|",
    ]
    for panel in panels:
        failed = failures(panel)
        claim = f"fails at {len(failed)} of {len(panel.gamma)} γ" if failed else "holds"
        above = _entries(panel, [row for row in failed if row["gamma"] > -1], "rank")
        fallen = [row for row in failed if row["gamma"] <= -1]
        fallen = _entries(panel, fallen, "first_depth_of_rank_1")
        what = (panel.block, panel.weights, panel.seed, panel.depth[-1], claim, above, fallen)
        lines.append(f"| {' | '.join(map(str, what))} |")
    return "\n".join(lines) + "\n"


def failures(panel: Panel) -> list[dict[str, Any]]:
    """Returns the γ at which a panel contradicts the claim, with their numbers and the reason."""
    rows = []
    for gamma, rank in zip(panel.gamma, panel.rank):
        if how := _how(gamma, rank[-1]):
            low = np.flatnonzero((rank >= 0) & (rank <= 1))
            first = int(panel.depth[low[0]]) if len(low) else None
            values = (panel.block, panel.weights, panel.seed, float(f"{gamma:g}"))
            values += (int(panel.depth[-1]), int(rank[-1]), first, how)
            rows.append(dict(zip(HEADER, values)))
    return rows


def _how(gamma: float, final_rank: int) -> str | None:
    if final_rank < 0:
        return "the output is not finite"
    if gamma > -1 and final_rank > 1:
        return "gamma > -1, yet the rank is still above 1"
    if gamma <= -1 and final_rank <= 1:
        return "gamma <= -1, yet the rank has fallen to 1"
    return None


def _entries(panel: Panel, rows: list[dict[str, Any]], name: str) -> str:
    """Formats neighbouring γ with the range of their entries: ``−0.95 to −0.8 (2 to 4)``."""
    grid = [float(f"{gamma:g}") for gamma in panel.gamma]
    places = [grid.index(row["gamma"]) for row in rows]
    breaks = np.flatnonzero(np.diff(places) != 1) + 1  # between rows that are not neighbours
    groups = np.split(np.array(rows, dtype=object), breaks) if rows else []
    return ", ".join(_entry(list(group), name) for group in groups) or "none"


def _entry(group: list[dict[str, Any]], name: str) -> str:
    known = sorted(row[name] for row in group if row["rank"] >= 0)
    lost = "" if len(known) == len(group) else f"{len(group) - len(known)} not finite"
    shown = ", ".join(filter(None, (_span(known), lost)))
    return f"{_span([row['gamma'] for row in group])} ({shown})"


def _span(values: list[float]) -> str:
    ends = dict.fromkeys(f"{value:g}".replace("-", "−") for value in values[:1] + values[-1:])
    return " to ".join(ends)
