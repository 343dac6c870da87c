"""Claims of Centered Self-Attention Layers (Ali et al., 4.3) about Table 6: tuned GCNs."""

from functools import partial
from math import sqrt

from oversmoothing.papers.claims.centered_graphs import (
    UNCLEAR,
    best,
    gaps,
    outperforms,
    reproduced,
    rivals,
    seeds,
)
from oversmoothing.papers.claims.claim import Claim, Finding, partly, share, tendency
from oversmoothing.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.papers.claims.rows import differences, pairs
from oversmoothing.report.verdict import Measured

DEPTHS = ("L=2", "L=4", "L=8", "L=16", "L=32")
CONTROLS = {"residual": "the residual GCN", "gcnii": "GCNII"}


def printed_tuning(evidence: Evidence) -> Finding:
    before, after = gaps(evidence, "table5"), gaps(evidence, "table6")
    grows = {place: after[place] > before[place] for place in after}
    shrinks = [" ".join(place) for place, good in grows.items() if not good]
    text = f"the gap to the best other row grows in {share(grows.values())} cells; shrinks at "
    text += ", ".join(shrinks) or "none"
    return Finding(partly(grows.values()), text, "as printed")


def measured_tuning(evidence: Evidence) -> Finding:
    before, after = evidence.measured("table5"), evidence.measured("table6")
    cases, texts = [], []
    for block, key, column in after:
        tables = before, after
        others = [rivals(cells, block, column) for cells in tables]
        if key == "centered" and (block, key, column) in before and all(others):
            ours = [cells[block, key, column] for cells in tables]
            firsts = [next(iter(of.values())) for of in others]
            change = (ours[1].mean - firsts[1].mean) - (ours[0].mean - firsts[0].mean)
            decided = abs(change) > 2 * _noise(*ours, *firsts)
            cases.append(change > 0 if decided else None)
            texts.append(f"{block} {column} {change:+.1f}" + "?" * (not decided))
    if not cases:
        raise NotRecordedError("no cell is run in both tables; `make table6` runs Table 6")
    text = f"the gap to the best measured other row grows in {share(cases)} cells: "
    text += ", ".join(texts)
    return Finding(
        tendency(cases), text, f"{seeds(after)}; ?: within two standard errors of the change"
    )


def _noise(*parts: Measured) -> float:
    """Standard error of a sum or difference of means."""
    return sqrt(sum((part.std or 0.0) ** 2 / part.n for part in parts))


def controls(evidence: Evidence) -> Finding:
    cells, cases, texts = evidence.measured("table6"), [], []
    for row, label in CONTROLS.items():
        found = pairs(cells, "centered", row)
        of = [pair.above for pair in found]
        cases += of
        texts += [f"above {label} in {share(of)} cells ({differences(found)})"] if found else []
    if not cases:
        raise NotRecordedError("no control is run beside centering; `make table6` runs it")
    return Finding(tendency(cases), "; ".join(texts), f"{seeds(cells)}; {UNCLEAR}")


_claim = partial(Claim, "Centered Self-Attention", command="make table6")
_found = partial(_claim, command="make tune table6")
_search = "A search for each row with the same budget, then five other seeds"
CLAIMS = [
    _claim(
        "centered_graphs_all6",
        "4.3",
        "Tuned, too, it outperforms LayerNorm, PairNorm and ContraNorm in all cases.",
        "The printed Table 6.",
        partial(outperforms, table="table6"),
    ),
    _found(
        "centered_graphs_best6",
        "4.3",
        "Tuned, too, it is the best method: measured.",
        f"{_search}: all depths, against the best measured other row of the paper.",
        partial(best, table="table6", columns=DEPTHS),
    ),
    _claim(
        "centered_graphs_tuning",
        "4.3, Table 6",
        "Tuning greatly increases the gap to the other methods.",
        "The printed Tables 5 and 6.",
        printed_tuning,
    ),
    _found(
        "centered_graphs_tuning6",
        "4.3, Table 6",
        "Tuning increases the gap to the other methods: measured.",
        f"{_search}, against the runs of Table 5.",
        measured_tuning,
    ),
    _found(
        "centered_graphs_controls",
        "4.3 (the paper has no such rows)",
        "Tuned alike, it is better than a residual GCN and GCNII.",
        f"{_search}: all depths.",
        controls,
    ),
    _found(
        "centered_graphs_table6",
        "Table 6",
        "The accuracies with tuned hyperparameters.",
        f"{_search}; the paper's search space is not published.",
        partial(reproduced, table="table6"),
    ),
]
