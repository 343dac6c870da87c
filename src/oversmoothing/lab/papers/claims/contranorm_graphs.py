"""Claims of ContraNorm (Guo et al., ICLR 2023) about deep GCNs that no rule of ``claims.yaml``
decides: Table 3, 4.3 and 4.4. Its transformers are in ``contranorm.py``.
"""

import re
from dataclasses import replace
from statistics import fmean

from oversmoothing.lab.papers.claims.evidence import Cells, Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.graphs import (
    DATA,
    DEEP,
    NAMES,
    OTHERS,
    READINGS,
    RUNS,
    TOLERANCE,
    spreads,
)
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
from oversmoothing.lab.report.verdict import Measured, Verdict, compare, margin, paired


def table3(evidence: Evidence) -> Finding:
    """Claim: our accuracies agree with those of the printed Table 3.

    The authors choose ContraNorm's s cell by cell, so a cell of ours agrees if one of the s that
    are run does.
    """
    table, texts, cases = "contranorm_table3", [], []
    cells, verdicts = evidence.measured(table), evidence.column(table, "verdict")
    for row in ("vanilla", "layernorm", "pairnorm"):
        close = [verdicts[place] == Verdict.WITHIN for place in cells if place[1] == row]
        cases += close
        texts.append(f"{OTHERS[row]} {share(close)}")
    printed, stds = evidence.published(table), spreads(evidence, table)
    ones = {(b, c): {1.0: of} for (b, row, c), of in cells.items() if row == "contranorm"}
    agree = []
    for (block, column), by_s in (ones | by_scale(evidence)).items():
        place = block, "contranorm", column
        agree.append([_agrees(by_s[s], printed[place], stds[place]) for s in sorted(by_s)[::-1]])
    cases += map(any, agree)
    at_1, several = [first for first, *_ in agree], [of for of in agree if len(of) > 1]
    text = (
        f"within: {', '.join(texts)}, ContraNorm {share(at_1)} with s = 1, and where other s are "
    )
    text += f"run {share(map(any, several))} with the closest s (with s = 1: "
    text += f"{share(first for first, *_ in several)})"
    return Finding(partly(cases), text, cells.seeds)


def _agrees(measured: Measured, printed: float, std: float = 0.0) -> bool:
    """Whether a cell is within the margin of Tables 3 and 5."""
    return abs(measured.mean - printed) <= margin(measured, std, RUNS, TOLERANCE)


def printed_at_every_depth(evidence: Evidence) -> Finding:
    """Claim: in its Table 3, ContraNorm is above the vanilla GCN in every cell."""
    printed = evidence.published("contranorm_table3")
    gains = {
        f"{block} {column}": value - printed[block, "vanilla", column]
        for (block, row, column), value in printed.items()
        if row == "contranorm"
    }
    lower = ", ".join(f"{place} ({gain:+.2f})" for place, gain in gains.items() if gain <= 0)
    cases = [gain > 0 for gain in gains.values()]
    return Finding(every(cases), f"higher in {share(cases, 'cells')}; not: {lower}", "as printed")


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


def by_scale(evidence: Evidence, width: str = "") -> dict[tuple[str, str], dict[float, Measured]]:
    """Returns cells of ContraNorm with several s: graph and depth -> s -> accuracy.

    ``width`` is the reading with another number of channels; "" is that of Table 5.

    Raises:
        NotRecordedError: there are none.
    """
    found: dict[tuple[str, str], dict[float, Measured]] = {}
    begin = f"{width}, s" if width else "s"
    for reading in evidence.readings(READINGS):
        if named := re.match(rf"{begin} = ([\d.]+)", reading):
            for (block, key, column), measured in evidence.cells(READINGS, reading):
                if key == "contranorm":
                    found.setdefault((block, column), {})[float(named[1])] = measured
    if not found:
        raise NotRecordedError(f"no cell is run with several s; `oversmoothing table {READINGS}`")
    plain = evidence.measured(READINGS, width) if width else evidence.measured("table5")
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


def chosen_scale(evidence: Evidence, width: str = "") -> Finding:
    """Tests the s with the highest mean validation accuracy against the printed value.

    The means are over the seeds that all s have.
    """
    runs = [run for table in ("table5", READINGS) for run in evidence.runs(table)]
    validation = {
        run["id"]: {int(s): of["val_accuracy"] for s, of in run["seeds"].items()} for run in runs
    }
    printed, cases, texts = evidence.published("contranorm_table3"), [], []
    for (block, column), by_s in by_scale(evidence, width).items():
        if {0.5, 0.8} <= {*by_s}:
            of_s = {scale: validation[cell.run_id] for scale, cell in by_s.items()}
            seeds = set.intersection(*map(set, of_s.values()))
            means = {scale: fmean(of[seed] for seed in seeds) for scale, of in of_s.items()}
            s = max(means, key=means.__getitem__)
            target = printed[block, "contranorm", column]
            cases.append(_agrees(by_s[s], target))
            tried = ", ".join(f"{scale:g}" for scale in sorted(by_s))
            texts.append(f"{block} {column}: s = {s:g} of {tried}, {by_s[s].text} ({target})")
    if not cases:
        raise NotRecordedError(
            f"no cell is run with s of 0.5 and 0.8; `oversmoothing table {READINGS}`"
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
        raise NotRecordedError(f"no cell is run; `oversmoothing table {READINGS}` runs it")
    narrow = evidence.column("table5", "verdict")
    found = evidence.column(READINGS, "verdict", reading)
    close = {place: found[place] == Verdict.WITHIN for place in places}
    shifts = {place: cells[place].mean - printed[place] for place in places if not close[place]}
    off = [f"{block} {column} {shift:+.1f} points" for (block, _, column), shift in shifts.items()]
    before = [narrow[place] == Verdict.WITHIN for place in places if place in narrow]
    text = f"within: {share(close.values(), 'cells')}, and {share(before)} with 32 channels"
    return Finding(partly(close.values()), f"{text}; off: {', '.join(off) or 'none'}", cells.seeds)


def test_set_of_a_fifth(evidence: Evidence) -> Finding:
    """Claim: the accuracies without spread are shares of a test set of 20 % of the nodes.

    Table 3 has no ±; they are from the copy of its rows in Table 5, where a misprint is corrected.
    """
    stds = spreads(evidence, "contranorm_table3") | spreads(evidence, "table5")
    printed, cases, texts = evidence.published("table5"), [], []
    for name, (nodes, *_) in DATA.items():
        sizes = nodes // 5, -(-nodes // 5)
        values = {v for p, v in printed.items() if p[0].lower() == name and stds[p] == 0}
        fits = {value: any(_is_share(value, size) for size in sizes) for value in sorted(values)}
        cases += fits.values()
        shown = ", ".join(f"{value} {'yes' if fit else 'no'}" for value, fit in fits.items())
        texts.append(f"{NAMES[name]}, {sizes[0]} or {sizes[1]} nodes: {shown or 'no such cell'}")
    text = f"a whole number of correct nodes for {share(cases, 'values')}: {'; '.join(texts)}"
    return Finding(partly(cases), text, "as printed, one misprint corrected")


def _is_share(percent: float, size: int) -> bool:
    """Whether a whole number out of ``size`` gives this percentage, to two decimals."""
    return abs(100 * round(percent * size / 100) / size - percent) < 0.0051
