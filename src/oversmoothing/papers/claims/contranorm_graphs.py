"""ContraNorm's claims about graphs (Guo et al., ICLR 2023, 4.3), from Table 5 of Centered."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from oversmoothing.papers.claims.claim import (
    OWN,
    Claim,
    Finding,
    higher_in,
    little,
    partly,
    share,
    tendency,
)
from oversmoothing.papers.claims.evidence import Cells, Evidence, NotRecordedError
from oversmoothing.papers.claims.rows import UNCLEAR, Pair, against, differences, pairs
from oversmoothing.report.verdict import Measured, Verdict, compare, paired

DEEP = ("L=8", "L=16", "L=32")
LITTLE = 1.0  # points
ROWS = ("contranorm", "vanilla")


def _seeds(evidence: Evidence) -> str:
    return f"{evidence.measured('table5').seeds}; {UNCLEAR}"


def near(measured: Measured, printed: float) -> bool:
    """Whether the difference is within 1 point or the noise of the measured mean."""
    return abs(measured.mean - printed) <= max(1, 2 * (measured.std or 0) / measured.n**0.5)


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


def wide(evidence: Evidence) -> Finding:
    """Claim: with 64 channels our accuracies of ContraNorm agree with the printed ones."""
    reading = ("table5_readings", "hidden 64")
    cells, printed = evidence.measured(*reading), evidence.published("table5")
    places = [place for place in cells if place[1] == "contranorm"]
    if not places:
        raise NotRecordedError(f"no cell is run; `make table NAME={reading[0]}` runs it")
    narrow, found = evidence.verdicts("table5"), evidence.verdicts(*reading)
    close = {place: found[place] == Verdict.WITHIN for place in places}
    shifts = {place: cells[place].mean - printed[place] for place in places if not close[place]}
    off = [f"{block} {column} {shift:+.1f} points" for (block, _, column), shift in shifts.items()]
    before = [narrow[place] == Verdict.WITHIN for place in places if place in narrow]
    text = f"within: {share(close.values(), 'cells')}, and {share(before)} with 32 channels"
    return Finding(partly(close.values()), f"{text}; off: {', '.join(off) or 'none'}", cells.seeds)


def shallow(evidence: Evidence) -> Finding:
    """Claim: at 2 layers ContraNorm is below the vanilla GCN."""
    found = pairs(evidence.measured("table5"), "vanilla", "contranorm", ["L=2"])
    against = pairs(evidence.measured("table5"), "contranorm", "vanilla", ["L=2"])
    cases = [pair.above for pair in found]
    text = f"lower on {share(cases, 'graphs')}; points: {differences(against)}"
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


def against_norms(evidence: Evidence) -> Finding:
    """Claim: from 4 layers on ContraNorm is above PairNorm and LayerNorm."""
    cells, texts, cases = evidence.measured("table5"), [], []
    found = against(cells, "contranorm", ("pairnorm", "layernorm"), ("L=4", *DEEP))
    for label, each in zip(("PairNorm", "LayerNorm"), found.values()):
        higher = [pair.above for pair in each]
        cases += higher
        texts.append(f"above {label} in {share(higher, 'cells')} ({differences(each)})")
    return Finding(tendency(cases), "; ".join(texts), _seeds(evidence))


def layernorm_on_cora(evidence: Evidence) -> Finding:
    """Claim: with more than 16 layers LayerNorm is below the vanilla GCN on Cora."""
    cells = evidence.measured("table5_readings", "20 seeds")
    found = pairs(cells, "vanilla", "layernorm", ["L=32"], ["Cora"])
    text = ", ".join(
        f"{p.column}: LayerNorm {p.base.mean:.1f}, vanilla {p.ours.mean:.1f} %" for p in found
    )
    return Finding(tendency(pair.above for pair in found), text, f"{cells.seeds}; {UNCLEAR}")


def scales(evidence: Evidence) -> Finding:
    """Claim: another s changes the accuracy by at most 1 point against s = 1."""
    shifts = {
        f"{block} {column}, s = {s:g}: ": compare(by_s[s], by_s[1.0])
        for (block, column), by_s in by_scale(evidence).items()
        for s in sorted(by_s)
        if s != 1
    }
    if not shifts:
        raise NotRecordedError("no cell is run with several s; `make table NAME=table5_readings`")
    cases = {name: little(shift, LITTLE) for name, shift in shifts.items()}
    outside, rest = (
        "; ".join(f"{name}{shifts[name].text}" for name, case in cases.items() if kept(case))
        for kept in (lambda case: case is False, lambda case: case is not False)
    )
    text = f"within {LITTLE:g} point of s = 1 in {share(cases.values(), 'cells')}; outside: "
    text += f"{outside or 'none'}; the others: {rest or 'none'}"
    return Finding(tendency(cases.values()), text, evidence.measured("table5").seeds)


SCALE = re.compile(r"s = ([\d.]+)")


def by_scale(evidence: Evidence) -> dict[tuple[str, str], dict[float, Measured]]:
    """Returns cells of ContraNorm with several s: graph and depth -> s -> accuracy."""
    found: dict[tuple[str, str], dict[float, Measured]] = {}
    for reading in evidence.readings("table5_readings"):
        if named := SCALE.match(reading):
            for (block, key, column), measured in evidence.cells("table5_readings", reading):
                if key == "contranorm":
                    found.setdefault((block, column), {})[float(named[1])] = measured
    plain = evidence.measured("table5")
    return {(b, c): by_s | {1.0: plain[b, "contranorm", c]} for (b, c), by_s in found.items()}


def chosen_scale(evidence: Evidence) -> Finding:
    """Tests the s with the highest mean validation accuracy against the printed value."""
    runs = [*evidence.runs("table5"), *evidence.runs("table5_readings")]
    validation = {
        run["id"]: fmean(seed["val_accuracy"] for seed in run["seeds"].values()) for run in runs
    }
    printed, cases, texts = evidence.published("contranorm_table3"), [], []
    for (block, column), by_s in by_scale(evidence).items():
        if {0.5, 0.8} <= {*by_s}:
            s = max(by_s, key=lambda scale: validation[by_s[scale].run_id])
            target = printed[block, "contranorm", column]
            cases.append(near(by_s[s], target))
            tried = ", ".join(f"{scale:g}" for scale in sorted(by_s))
            texts.append(f"{block} {column}: s = {s:g} of {tried}, {by_s[s].text} ({target})")
    if not cases:
        raise NotRecordedError("no cell is run with several s; `make table NAME=table5_readings`")
    seeds = evidence.measured("table5").seeds
    return Finding(partly(cases), f"test (printed): {'; '.join(texts)}", seeds)


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
    _claim(
        "contranorm_graphs_layernorm",
        "4.3",
        "LayerNorm alone makes Cora worse with more than 16 layers.",
        "32 layers: LayerNorm against the vanilla GCN.",
        layernorm_on_cora,
        command="make table NAME=table5_readings",
    ),
    _claim(
        "contranorm_robust",
        "4.4, E.2",
        "The result is robust in s within a suitable range.",
        "All cells that are run with several s from 0.2 on, against s = 1; no range is given "
        f"(robust: the 95 % interval lies within {LITTLE:g} point).",
        scales,
        command="make table NAME=table5_readings",
    ),
    Claim(
        OWN,
        "contranorm_width",
        "on ContraNorm, Table 3",
        "The accuracies of its row of ContraNorm, with 64 channels, where the text names 32.",
        "All cells that are run with this width, that of the earliest checkpoints of its code; not "
        "on Squirrel.",
        wide,
        command="make table NAME=table5_readings",
    ),
    Claim(
        OWN,
        "contranorm_scale",
        "on ContraNorm, Table 3, whose authors choose s from a list",
        "With s chosen by validation the accuracies are those of its table.",
        "The s with the highest mean validation accuracy of those that are run (within 1 point or "
        "the noise of the measured mean).",
        chosen_scale,
        command="make table NAME=table5_readings",
    ),
]
