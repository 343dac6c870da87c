"""ContraNorm's claims about graphs (Guo et al., ICLR 2023, 4.3), from Table 5 of Centered."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from oversmoothing.lab.papers.claims.claim import (
    OWN,
    Claim,
    Finding,
    higher_in,
    partly,
    share,
    tendency,
    weakest,
)
from oversmoothing.lab.papers.claims.evidence import Cells, Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.rows import UNCLEAR, Pair, against, differences, pairs
from oversmoothing.lab.report.verdict import Verdict, paired

DEEP = ("L=8", "L=16", "L=32")
ROWS = ("contranorm", "vanilla")


def _seeds(evidence: Evidence) -> str:
    return f"{evidence.measured('table5').seeds}; {UNCLEAR}"


def values(evidence: Evidence) -> Finding:
    """Claim: our accuracies agree with those of the printed Table 3."""
    cells, verdicts = evidence.measured("contranorm_table3"), evidence.verdicts("contranorm_table3")
    texts, cases = [], []
    for row in ("vanilla", "layernorm", "pairnorm", "contranorm"):
        close = [verdicts[place] == Verdict.WITHIN for place in cells if place[1] == row]
        cases += close
        printed = [place for place in evidence.published("contranorm_table3") if place[1] == row]
        missing = len(printed) - len(close)
        texts.append(f"{row} {share(close)}" + f" ({missing} not run)" * (missing > 0))
    return Finding(partly(cases), f"within: {', '.join(texts)}", cells.seeds)


def shallow(evidence: Evidence) -> Finding:
    """Claim: at 2 layers ContraNorm is below the vanilla GCN."""
    found = pairs(evidence.measured("table5"), "vanilla", "contranorm", ["L=2"])
    points = pairs(evidence.measured("table5"), "contranorm", "vanilla", ["L=2"])
    cases = [pair.above for pair in found]
    text = f"lower on {share(cases, 'graphs')}; points: {differences(points)}"
    return Finding(tendency(cases), text, _seeds(evidence))


def against_vanilla(
    evidence: Evidence, columns: Sequence[str] = (), everywhere: bool = False
) -> Finding:
    """Claim: ContraNorm is above the vanilla GCN, as a tendency or ``everywhere``."""
    found = pairs(evidence.measured("table5"), "contranorm", "vanilla", columns)
    cases = [pair.above for pair in found]
    text = f"higher in {share(cases, 'cells')}; points: {differences(found)}"
    return Finding(tendency(cases, everywhere), text, _seeds(evidence))


def prevented(evidence: Evidence) -> Finding:
    """Claim: with 8 layers and more ContraNorm is above the vanilla GCN, and drops less."""
    cells = evidence.measured("table5")
    found = pairs(cells, "contranorm", "vanilla", DEEP)
    changes = {
        pair.name: paired(*(_since_two_layers(cells, pair, row) for row in ROWS)) for pair in found
    }
    tested = 2 * len(found)  # both questions are one claim
    found = [replace(pair, comparisons=tested) for pair in found]
    higher = [pair.above for pair in found]
    less = {name: higher_in(change, tested) for name, change in changes.items()}
    points = ", ".join(
        f"{name} {change.mean:+.1f}" + "?" * (less[name] is None)
        for name, change in changes.items()
    )
    text = f"higher in {share(higher, 'cells')}; points: {differences(found)}; drops less from 2 "
    text += f"layers on in {share(less.values(), 'cells')}; points, paired: {points}"
    return Finding(tendency([*higher, *less.values()]), text, _seeds(evidence))


def _since_two_layers(cells: Cells, pair: Pair, row: str) -> dict[int, float]:
    """Returns the change of accuracy from 2 layers to those of a pair, by seed."""
    start, end = (
        dict(zip(cell.seeds, cell.values))
        for cell in (cells[pair.block, row, column] for column in ("L=2", pair.column))
    )
    return {seed: value - start[seed] for seed, value in end.items() if seed in start}


def against_norms(evidence: Evidence, table: str = "table5", reading: str = "") -> Finding:
    """Claim: from 4 layers on ContraNorm is above PairNorm and LayerNorm."""
    cells, texts, verdicts = evidence.measured(table, reading), [], []
    found = against(cells, "contranorm", ("pairnorm", "layernorm"), ("L=4", *DEEP))
    for label, each in zip(("PairNorm", "LayerNorm"), found.values()):
        higher = [pair.above for pair in each]
        verdicts.append(tendency(higher))
        texts.append(f"above {label} in {share(higher, 'cells')} ({differences(each)})")
    if not any(found.values()):
        raise NotRecordedError(f"{table}: no cell of ContraNorm is run beside another norm")
    return Finding(weakest(verdicts), "; ".join(texts), f"{cells.seeds}; {UNCLEAR}")


def layernorm_on_cora(evidence: Evidence) -> Finding:
    """Claim: with more than 16 layers LayerNorm is below the vanilla GCN on Cora."""
    cells = evidence.measured("table5_readings", "20 seeds")
    found = pairs(cells, "vanilla", "layernorm", ["L=32"], ["Cora"])
    text = ", ".join(
        f"{p.column}: LayerNorm {p.base.mean:.1f}, vanilla {p.ours.mean:.1f} %" for p in found
    )
    return Finding(tendency(pair.above for pair in found), text, f"{cells.seeds}; {UNCLEAR}")


_claim = partial(Claim, "ContraNorm", command="make table5")
CLAIMS = [
    _claim(
        "contranorm_table3",
        "Table 3",
        "The accuracies of its table.",
        "GCNs of 2 to 32 layers on four graphs, s = 1 (within: as in the table).",
        values,
        command="make table NAME=contranorm_table3",
    ),
    _claim(
        "contranorm_graphs_shallow",
        "4.3",
        "With 2 layers ContraNorm makes the accuracy of a GCN slightly lower.",
        "Table 5 at L = 2, s = 1, against the vanilla GCN.",
        shallow,
    ),
    _claim(
        "contranorm_graphs_deep",
        "4.3",
        "With more layers it helps to prevent the sharp drop.",
        "Table 5 at 8 layers and more, against the vanilla GCN: a higher accuracy, and a smaller "
        "drop since 2 layers.",
        prevented,
    ),
    _claim(
        "contranorm_graphs_all",
        "Introduction",
        "It is better than the vanilla GCN at every depth.",
        "Table 5, all measured cells.",
        partial(against_vanilla, everywhere=True),
    ),
    _claim(
        "contranorm_graphs_norms",
        "4.3",
        "It prevents oversmoothing better than PairNorm and LayerNorm.",
        "Table 5 with 4 layers and more.",
        against_norms,
    ),
    Claim(
        OWN,
        "contranorm_graphs_norms20",
        "on Table 5 of Centered Self-Attention, with 20 seeds",
        "ContraNorm prevents oversmoothing better than PairNorm and LayerNorm.",
        "8 layers on all graphs, 16 on all but Squirrel, 32 on Chameleon, s = 1.",
        partial(against_norms, table="table5_readings", reading="20 seeds"),
        command="make table NAME=table5_readings",
    ),
    _claim(
        "contranorm_graphs_layernorm",
        "4.3",
        "LayerNorm alone makes Cora worse with more than 16 layers.",
        "32 layers: LayerNorm against the vanilla GCN.",
        layernorm_on_cora,
        command="make table NAME=table5_readings",
    ),
]
