"""Claims of Centered Self-Attention (Ali et al., 4.3) about deep GCNs that no rule of
``claims.yaml`` decides: Tables 5 and 6.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean

from scipy.stats import binomtest, t

from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.data.planetoid import folders, load
from oversmoothing.lab.papers.claims.evidence import Cells, Evidence, NotRecordedError, Place
from oversmoothing.lab.papers.claims.rules import (
    UNCLEAR,
    Finding,
    above,
    every,
    partly,
    pooled,
    share,
    tendency,
)
from oversmoothing.lab.report.verdict import (
    SIGNIFICANCE,
    Measured,
    Verdict,
    margin,
    paired,
)

DEEP = ("L=8", "L=16", "L=32")
OTHERS = {
    "vanilla": "vanilla",
    "layernorm": "LayerNorm",
    "pairnorm": "PairNorm",
    "contranorm": "ContraNorm",
}
EXCEPT = {(block, column) for block in ("Cora", "CiteSeer") for column in ("L=2", "L=4")}
READINGS = "table5_readings"
RUNS, TOLERANCE = 5, 1.0  # published runs; points that count as agreement
NAMES = {name.lower(): name for name in ("Cora", "CiteSeer", "Chameleon", "Squirrel")}
DATA = {  # as printed: nodes, edges, features, classes
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "chameleon": (2277, 36101, 500, 6),
    "squirrel": (5201, 217073, 2089, 4),
}


def rivals(cells: Cells, block: str, column: str) -> dict[str, Measured]:
    """Returns the other measured rows for a cell of centering, the best first."""
    found = {o: cells[block, o, column] for o in OTHERS if (block, o, column) in cells}
    return dict(sorted(found.items(), key=lambda row: -row[1].mean))


def best(
    evidence: Evidence, table: str, reading: str = "", columns: Sequence[str] = DEEP
) -> Finding:
    """Compares centering with the best other row that is measured, cell by cell.

    The best row is known only after the measurement, so every other row counts as a comparison. A
    cell where centering is above all measured rows is not decided while another row is not run.
    """
    cells, compared, texts, missing = evidence.measured(table, reading), [], [], []
    comparisons = 0
    for (block, key, column), ours in cells.items():
        others = rivals(cells, block, column)
        if key == "centered" and column in columns and others:
            first, theirs = next(iter(others.items()))
            absent = [OTHERS[row] for row in OTHERS if row not in others]
            compared.append((ours, theirs, absent))
            comparisons += len(others)
            texts.append(f"{block} {column} {ours.mean - theirs.mean:+.1f} to {OTHERS[first]}")
            missing += [f"{block} {column} {row}" for row in absent]
    if not compared:
        raise NotRecordedError(
            f"{table}: no cell of centering is run beside another row; "
            f"`oversmoothing table {table}` runs it"
        )
    cases = [above(a, b, comparisons) and (None if absent else True) for a, b, absent in compared]
    texts = [text + "?" * (case is None) for text, case in zip(texts, cases)]
    text = f"best in {share(cases, 'cells')}; points to the best other row: {'; '.join(texts)}"
    text += f"; not run: {', '.join(missing)}" * bool(missing)
    return Finding(tendency(cases), text, f"{cells.seeds}; {UNCLEAR}")


def best_tuned(evidence: Evidence, columns: Sequence[str]) -> Finding:
    """As ``best`` on Table 6; also counts how often the search chose γ = −1."""
    found, words = best(evidence, "table6", columns=columns), evidence.column("table6", "overrides")
    ours = [words[place].split() for place in evidence.measured("table6") if place[1] == "centered"]
    plain = [not {w for w in own if "gamma" in w} - {"aggregator.gamma=-1.0"} for own in ours]
    text = f"{found.measured}; the search took γ = −1 in {share(plain, 'cells')}"
    return replace(found, measured=text)


def gaps(
    evidence: Evidence, table: str, others: Sequence[str] = (*OTHERS,)
) -> dict[tuple[str, str], float]:
    """Returns the printed gain of centering over the best other row, by graph and depth."""
    printed = evidence.published(table)
    return {
        (block, column): value - max(printed[block, other, column] for other in others)
        for (block, key, column), value in printed.items()
        if key == "centered"
    }


def outperforms(evidence: Evidence, table: str) -> Finding:
    """Claim: centering is above three other methods in all printed cells but the excepted ones."""
    found = gaps(evidence, table, [*OTHERS][1:])
    cases = [gap > 0 for place, gap in found.items() if place not in EXCEPT]
    lower = {place: f"{' '.join(place)} ({gap:+.2f})" for place, gap in found.items() if gap <= 0}
    not_, excepted = (
        ", ".join(text for place, text in lower.items() if (place in EXCEPT) is of) or "none"
        for of in (False, True)
    )
    text = (
        f"above all three in {share(cases, 'cells')}; not: {not_}; of the excepted ones: {excepted}"
    )
    return Finding(every(cases), text, "as printed")


def tuning_as_printed(evidence: Evidence) -> Finding:
    """Claim: the gap to the best other row grows from the printed Table 5 to Table 6."""
    before, after = gaps(evidence, "table5"), gaps(evidence, "table6")
    grows = {place: after[place] > before[place] for place in after}
    shrinks = [" ".join(place) for place, good in grows.items() if not good]
    text = f"the gap to the best other row grows in {share(grows.values(), 'cells')}; shrinks at "
    text += ", ".join(shrinks) or "none"
    return Finding(partly(grows.values()), text, "as printed")


def tuning_as_measured(evidence: Evidence) -> Finding:
    """Compares the gap to the best other row of both tables, over the rows that both have."""
    tables = evidence.measured("table5"), evidence.measured("table6")
    found, comparisons = {}, 0
    for block, key, column in tables[1]:
        others = [rivals(cells, block, column) for cells in tables]
        both = [row for row in others[0] if row in others[1]]
        if key == "centered" and (block, key, column) in tables[0] and both:
            ours = [cells[block, key, column] for cells in tables]
            firsts = [max((rows[row] for row in both), key=lambda m: m.mean) for rows in others]
            comparisons += len(both)  # which row is the best is known only afterwards
            found[f"{block} {column}"] = tuple(zip(ours, firsts))
    if not found:
        raise NotRecordedError("no cell is run in both tables; `make table6` runs Table 6")
    cases = [grows(*before_and_after, comparisons) for before_and_after in found.values()]
    texts = [
        f"{place} {a.mean - b.mean:+.1f} → {c.mean - d.mean:+.1f}" + "?" * (case is None)
        for (place, ((a, b), (c, d))), case in zip(found.items(), cases)
    ]
    text = (
        f"the gap to the best other row of both tables grows in {share(cases, 'cells')}; points to "
        f"it, before and after: {', '.join(texts)}"
    )
    return Finding(tendency(cases), text, f"{tables[1].seeds}; {UNCLEAR}")


Gap = tuple[Measured, Measured]  # centering and the best other row


def grows(before: Gap, after: Gap, comparisons: int) -> bool | None:
    """Whether the second gap is larger; None if Welch's t-test of four means is not significant."""
    parts = [*before, *after]
    noise = [(part.std or 0.0) ** 2 / part.n for part in parts]
    change = (after[0].mean - after[1].mean) - (before[0].mean - before[1].mean)
    if min(part.n for part in parts) < 2 or not sum(noise):
        return None
    freedom = sum(noise) ** 2 / sum(v**2 / (part.n - 1) for v, part in zip(noise, parts))
    p = 2 * t.sf(abs(change) / sqrt(sum(noise)), freedom)
    return change > 0 if p < SIGNIFICANCE / comparisons else None


def reproduced(evidence: Evidence, table: str, reading: str = "") -> Finding:
    """Claim: our accuracies of centering agree with the printed ones."""
    run = {
        place: verdict
        for place, verdict in evidence.column(table, "verdict", reading).items()
        if place[1] == "centered" and verdict in ("within", "off", "contradicted")
    }
    if not run:
        raise NotRecordedError(f"no cell is run; `oversmoothing table {table}` runs it")
    cases = [verdict == Verdict.WITHIN for verdict in run.values()]
    printed = evidence.published(table.removesuffix("_readings"))
    measured = evidence.measured(table, reading)
    shifts = {place: measured[place].mean - printed[place] for place in run}
    spread = spreads(evidence, table, reading)  # ± as points, read as fractions
    strict = [
        abs(shift) <= margin(measured[place], spread[place] / 100, RUNS, TOLERANCE)
        for place, shift in shifts.items()
    ]
    low, high = min(shifts.values()), max(shifts.values())
    lower = [shift < 0 for shift in shifts.values()]
    p = binomtest(sum(lower), len(lower)).pvalue
    text = (
        f"{share(lower, 'cells')} are lower than printed (sign test, p = {p:.2g}); differences "
        f"{low:+.1f} to {high:+.1f} points; within the margin: {share(cases)} if ± is a fraction, "
        f"{share(strict)} if it is in points"
    )
    return Finding(partly(cases), text, measured.seeds)


def spreads(evidence: Evidence, table: str, reading: str = "") -> dict[Place, float]:
    """Returns the printed ± in points, as a table reads them."""
    texts = evidence.column(table, "published_std", reading)
    return {place: float(text or 0) for place, text in texts.items()}


def without_layernorm(evidence: Evidence) -> Finding:
    """Claim: without LayerNorm, centering keeps more than half of the printed gain."""
    cells = evidence.measured(READINGS, "no LayerNorm")
    plain, printed = evidence.measured("table5"), evidence.published("table5")
    cases, texts = [], []
    for block, key, column in (place for place in cells if place[2] in DEEP):
        ours, base = (block, key, column), (block, "vanilla", column)
        gain, said = cells[ours].mean - plain[base].mean, printed[ours] - printed[base]
        cases.append(gain > said / 2)
        texts.append(f"{block} {column} {gain:+.1f} ({said:+.1f})")
    text = f"more than half of the printed gain in {share(cases, 'cells')}; "
    text += f"points, in brackets as printed: {', '.join(texts)}"
    return Finding(partly(cases), text, cells.seeds)


def nodes_alike(evidence: Evidence) -> Finding:
    """Claim: nodes are more alike in deep GCNs; with random weights, pooled over the graphs."""
    found: dict[tuple[str, str, int], dict[int, float]] = {}
    for line in evidence.csv("diagnose/gcn_depth.csv", "python examples/diagnose_gcn.py"):
        place = line["network"], line["graph"], int(line["depth"])
        found.setdefault(place, {})[int(line["seed"])] = float(line["cosine"])
    texts, tests = [], {}
    for network in ("random", "trained"):
        names = [graph for kind, graph, depth in found if (kind, depth) == (network, 2)]
        ends = {name: (found[network, name, 2], found[network, name, 32]) for name in names}
        tests[network] = pooled(paired(deep, shallow) for shallow, deep in ends.values())
        each = ", ".join(
            f"{NAMES[name]} {fmean(a.values()):.2f} → {fmean(b.values()):.2f}"
            for name, (a, b) in ends.items()
        )
        texts.append(f"{network} weights ({tests[network].text}): {each}")
    n = min(map(len, found.values()))
    return Finding(tendency([tests["random"].higher]), "; ".join(texts), f"{n} seeds per depth")


def copied_rows(evidence: Evidence) -> Finding:
    """Claim: the rows of other methods in Table 5 are those of ContraNorm's Table 3."""
    theirs, ours = evidence.published("contranorm_table3"), evidence.column("table5", "published")
    equal = {place: float(ours[place]) == value for place, value in theirs.items()}
    others = [" ".join(place) for place, same in equal.items() if not same]
    text = f"{share(equal.values(), 'values')} are equal to the digit; not: {', '.join(others)}"
    return Finding(partly(equal.values()), text, "as printed")


def most_on_two_graphs(evidence: Evidence) -> Finding:
    """Claim: the printed gain over the vanilla GCN is larger on Cora and CiteSeer."""
    printed, gains = evidence.published("table5"), {}
    for (block, key, column), value in printed.items():
        if key == "centered" and column in DEEP:
            gains.setdefault(block, []).append(value - printed[block, "vanilla", column])
    means = {block: fmean(of) for block, of in gains.items()}
    first, others = (
        [mean for block, mean in means.items() if (block in ("Cora", "CiteSeer")) is two]
        for two in (True, False)
    )
    each = ", ".join(f"{block} {mean:+.1f}" for block, mean in means.items())
    text = f"mean gain with 8 layers and more: {each}"
    return Finding(every([min(first) > max(others)]), text, "as printed")


def sizes_of_data() -> Finding:
    """Compares numbers of nodes, edges, features and classes with those in the files."""
    root, texts, cases = os.environ.get("DATA_ROOT", "data"), [], []
    for name, printed in DATA.items():
        if any(not Path(root, "graphs", folder).is_dir() for folder in folders(name)):
            raise NotRecordedError(f"{name} is not here; `oversmoothing data {name}` fetches it")
        graph = load(name, root=root)
        found = graph.num_nodes, _edges(graph, root), graph.x.shape[1], graph.num_classes
        for what, number, said in zip(("nodes", "edges", "features", "classes"), found, printed):
            cases.append(number == said)
            texts += [f"{name} has {number} {what} ({said})"] * (number != said)
    text = f"{share(cases, 'numbers')} are right; {', '.join(texts)}"
    return Finding(partly(cases), text, f"{len(DATA)} graphs")


def _edges(graph: Graph, root: str) -> int:
    """Counts edges as in the paper: node pairs in Cora and CiteSeer, file lines for others."""
    for folder in folders(graph.name):
        path = Path(root, "graphs", folder, "out1_graph_edges.txt")
        if path.exists():
            return len(path.read_text("utf-8").splitlines()) - 1
    return graph.edges.shape[1] // 2
