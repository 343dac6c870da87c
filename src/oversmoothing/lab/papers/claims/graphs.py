"""Claims about deep GCNs that no rule of ``claims.yaml`` decides: Tables 5 and 6 of Centered
Self-Attention (Ali et al., 4.3), Table 3 of ContraNorm (Guo et al., ICLR 2023, 4.3 and 4.4).
"""

import os
import re
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
    Pair,
    above,
    differences,
    every,
    higher_in,
    little,
    pairs,
    partly,
    share,
    tendency,
)
from oversmoothing.lab.report.verdict import (
    SIGNIFICANCE,
    Measured,
    Verdict,
    compare,
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
EXCEPT = {("Cora", "L=2"), ("CiteSeer", "L=2")}  # "the most shallow models", as the text says
READINGS = "table5_readings"
RUNS, TOLERANCE = 5, 1.0  # published runs; points that count as agreement
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
            f"`make table NAME={table}` runs it"
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
    """Claim: centering is above three other methods in all printed cells but two."""
    found = gaps(evidence, table, [*OTHERS][1:])
    found = {place: gap for place, gap in found.items() if place not in EXCEPT}
    cases = [gap > 0 for gap in found.values()]
    lower = [f"{' '.join(place)} ({gap:+.2f})" for place, gap in found.items() if gap <= 0]
    text = f"above all three in {share(cases, 'cells')}; not: {', '.join(lower) or 'none'}"
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
        raise NotRecordedError(f"no cell is run; `make table NAME={table}` runs it")
    cases = [verdict == Verdict.WITHIN for verdict in run.values()]
    printed = evidence.published(table.removesuffix("_readings"))
    measured = evidence.measured(table, reading)
    shifts = {place: measured[place].mean - printed[place] for place in run}
    spread = _spreads(evidence, table, reading)  # ± as points, read as fractions
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


def _spreads(evidence: Evidence, table: str, reading: str = "") -> dict[Place, float]:
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


def copied_rows(evidence: Evidence) -> Finding:
    """Claim: the rows of other methods in Table 5 are those of ContraNorm's Table 3."""
    theirs, ours = evidence.published("contranorm_table3"), evidence.column("table5", "published")
    equal = {place: float(ours[place]) == value for place, value in theirs.items()}
    others = [" ".join(place) for place, same in equal.items() if not same]
    text = f"{share(equal.values(), 'values')} are equal to the digit; not: {', '.join(others)}"
    return Finding(partly(equal.values()), text, "as printed")


def test_set_of_a_fifth(evidence: Evidence) -> Finding:
    """Claim: the accuracies without spread are shares of a test set of 20 % of the nodes."""
    spreads = _spreads(evidence, "contranorm_table3") | _spreads(evidence, "table5")
    printed, cases, texts = evidence.published("table5"), [], []
    for name, (nodes, *_) in DATA.items():
        sizes = nodes // 5, -(-nodes // 5)
        values = {v for p, v in printed.items() if p[0].lower() == name and spreads[p] == 0}
        fits = {value: any(_is_share(value, size) for size in sizes) for value in sorted(values)}
        cases += fits.values()
        shown = ", ".join(f"{value} {'yes' if fit else 'no'}" for value, fit in fits.items())
        texts.append(
            f"{name.capitalize()}, {sizes[0]} or {sizes[1]} nodes: {shown or 'no such cell'}"
        )
    text = f"a whole number of correct nodes for {share(cases, 'values')}: {'; '.join(texts)}"
    return Finding(every(cases), text, "as printed, one misprint corrected")


def _is_share(percent: float, size: int) -> bool:
    """Whether a whole number out of ``size`` gives this percentage, to two decimals."""
    return abs(100 * round(percent * size / 100) / size - percent) < 0.0051


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
            raise NotRecordedError(f"{name} is not here; `make data DATA={name}` fetches it")
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


# ContraNorm


def contranorm_table3(evidence: Evidence) -> Finding:
    """Claim: our accuracies agree with those of the printed Table 3."""
    table, texts, cases = "contranorm_table3", [], []
    cells, verdicts = evidence.measured(table), evidence.column(table, "verdict")
    for row in OTHERS:
        close = [verdicts[place] == Verdict.WITHIN for place in cells if place[1] == row]
        cases += close
        missing = sum(place[1] == row for place in evidence.published(table)) - len(close)
        texts.append(f"{row} {share(close)}" + f" ({missing} not run)" * (missing > 0))
    return Finding(partly(cases), f"within: {', '.join(texts)}", cells.seeds)


def prevented_drop(evidence: Evidence) -> Finding:
    """Claim: with 8 layers and more ContraNorm is above the vanilla GCN, and keeps more.

    What is kept is a share of the lead of two layers over the collapsed network, since a network
    that starts near it cannot lose many points.
    """
    cells = evidence.measured("table5")
    found = pairs(cells, "contranorm", "vanilla", DEEP)
    tested = 2 * len(found)  # both questions are one claim
    found = [replace(pair, comparisons=tested) for pair in found]
    higher = [pair.above for pair in found]
    more, shares = [], []
    for pair in found:
        ours, base = (_kept(cells, pair, row) for row in ("contranorm", "vanilla"))
        more.append(higher_in(paired(ours, base), tested))
        means = " and ".join(f"{fmean(of.values()):.0f}" for of in (ours, base))
        shares.append(f"{pair.name} {means}" + "?" * (more[-1] is None))
    text = f"higher in {share(higher, 'cells')}; points: {differences(found)}; keeps more of the "
    text += f"lead over the collapsed GCN in {share(more, 'cells')}; %, with it and without: "
    text += ", ".join(shares)
    return Finding(tendency([*higher, *more]), text, f"{cells.seeds}; {UNCLEAR}")


def _kept(cells: Cells, pair: Pair, row: str) -> dict[int, float]:
    """Returns the share of the lead of 2 layers over the collapsed GCN that is left, by seed, in %.

    The collapsed GCN is the vanilla one of the depth with the lowest mean.
    """
    vanilla = [of.mean for (block, key, _), of in cells.items()
               if (block, key) == (pair.block, "vanilla")]  # fmt: skip
    start, end = (
        dict(zip(cell.seeds, cell.values))
        for cell in (cells[pair.block, row, column] for column in ("L=2", pair.column))
    )
    floor = min(vanilla)
    return {
        seed: 100 * (value - floor) / (start[seed] - floor)
        for seed, value in end.items()
        if seed in start
    }


def layernorm_on_cora(evidence: Evidence) -> Finding:
    """Claim: with more than 16 layers LayerNorm is below the vanilla GCN on Cora."""
    cells = evidence.measured(READINGS, "20 seeds")
    vanilla, layernorm = (cells["Cora", row, "L=32"] for row in ("vanilla", "layernorm"))
    text = f"L=32: LayerNorm {layernorm.mean:.1f}, vanilla {vanilla.mean:.1f} %"
    verdict = tendency([above(vanilla, layernorm, 1)])
    return Finding(verdict, text, f"{cells.seeds}; {UNCLEAR}")


def by_scale(evidence: Evidence) -> dict[tuple[str, str], dict[float, Measured]]:
    """Returns cells of ContraNorm with several s: graph and depth -> s -> accuracy.

    Raises:
        NotRecordedError: there are none.
    """
    found: dict[tuple[str, str], dict[float, Measured]] = {}
    for reading in evidence.readings(READINGS):
        if named := re.match(r"s = ([\d.]+)", reading):
            for (block, key, column), measured in evidence.cells(READINGS, reading):
                if key == "contranorm":
                    found.setdefault((block, column), {})[float(named[1])] = measured
    if not found:
        raise NotRecordedError(f"no cell is run with several s; `make table NAME={READINGS}`")
    plain = evidence.measured("table5")
    return {(b, c): by_s | {1.0: plain[b, "contranorm", c]} for (b, c), by_s in found.items()}


def scales(evidence: Evidence, within: float) -> Finding:
    """Claim: another s changes the accuracy by at most some points against s = 1."""
    shifts = {
        f"{block} {column}, s = {s:g}: ": compare(by_s[s], by_s[1.0])
        for (block, column), by_s in by_scale(evidence).items()
        for s in sorted(by_s)
        if s != 1
    }
    cases = {name: little(shift, within) for name, shift in shifts.items()}
    texts = {name: f"{name}{shift.text}" for name, shift in shifts.items()}
    outside = [texts[name] for name, case in cases.items() if case is False]
    others = [texts[name] for name, case in cases.items() if case is not False]
    text = f"within {within:g} point of s = 1 in {share(cases.values(), 'cells')}; outside: "
    text += f"{'; '.join(outside) or 'none'}; the others: {'; '.join(others) or 'none'}"
    return Finding(tendency(cases.values()), text, evidence.measured("table5").seeds)


def chosen_scale(evidence: Evidence) -> Finding:
    """Tests the s with the highest mean validation accuracy against the printed value.

    The means are over the seeds that all s have.
    """
    runs = [run for table in ("table5", READINGS) for run in evidence.runs(table)]
    validation = {
        run["id"]: {int(s): of["val_accuracy"] for s, of in run["seeds"].items()} for run in runs
    }
    printed, cases, texts = evidence.published("contranorm_table3"), [], []
    for (block, column), by_s in by_scale(evidence).items():
        if {0.5, 0.8} <= {*by_s}:
            of_s = {scale: validation[cell.run_id] for scale, cell in by_s.items()}
            seeds = set.intersection(*map(set, of_s.values()))
            means = {scale: fmean(of[seed] for seed in seeds) for scale, of in of_s.items()}
            s = max(means, key=means.__getitem__)
            target = printed[block, "contranorm", column]
            cases.append(abs(by_s[s].mean - target) <= margin(by_s[s], 0.0, RUNS, TOLERANCE))
            tried = ", ".join(f"{scale:g}" for scale in sorted(by_s))
            texts.append(f"{block} {column}: s = {s:g} of {tried}, {by_s[s].text} ({target})")
    if not cases:
        raise NotRecordedError(
            f"no cell is run with s of 0.5 and 0.8; `make table NAME={READINGS}`"
        )
    seeds = evidence.measured("table5").seeds
    text = f"agrees in {share(cases, 'cells')}; test (printed): {'; '.join(texts)}"
    return Finding(partly(cases), text, seeds)


def wide(evidence: Evidence) -> Finding:
    """Claim: with 64 channels our accuracies of ContraNorm agree with the printed ones."""
    reading = "hidden 64"
    cells, printed = evidence.measured(READINGS, reading), evidence.published("table5")
    places = [place for place in cells if place[1] == "contranorm"]
    if not places:
        raise NotRecordedError(f"no cell is run; `make table NAME={READINGS}` runs it")
    narrow = evidence.column("table5", "verdict")
    found = evidence.column(READINGS, "verdict", reading)
    close = {place: found[place] == Verdict.WITHIN for place in places}
    shifts = {place: cells[place].mean - printed[place] for place in places if not close[place]}
    off = [f"{block} {column} {shift:+.1f} points" for (block, _, column), shift in shifts.items()]
    before = [narrow[place] == Verdict.WITHIN for place in places if place in narrow]
    text = f"within: {share(close.values(), 'cells')}, and {share(before)} with 32 channels"
    return Finding(partly(close.values()), f"{text}; off: {', '.join(off) or 'none'}", cells.seeds)
