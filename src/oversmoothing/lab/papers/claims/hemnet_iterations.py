"""HEMNet's claims about iterations and step sizes (Song, Kim, Shim, AAAI 2021, 5.2)."""

from functools import partial

from scipy.stats import spearmanr

from oversmoothing.lab.papers.claims.claim import (
    SMALL,
    Claim,
    Finding,
    directions,
    every,
    partly,
    share,
)
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.report.verdict import compare

STEPS = {"η=0.1": 0.1, "η=0.2": 0.2, "η=0.4": 0.4, "η=0.8": 0.8, "EMANet": 1.0}


def grid(evidence: Evidence, table: str) -> dict[int, dict[float, float]]:
    """mIoU by T and η of a printed table."""
    found: dict[int, dict[float, float]] = {}
    for (_, row, column), value in evidence.published(table).items():
        found.setdefault(int(row.removeprefix("T=")), {})[STEPS[column]] = value
    return dict(sorted(found.items()))


def best_steps(evidence: Evidence) -> dict[int, float]:
    """The η with the highest printed mIoU, by T."""
    return {
        T: max(by_step, key=lambda eta: by_step[eta])
        for T, by_step in grid(evidence, "hemnet_table1").items()
    }


def best_iterations(evidence: Evidence) -> dict[float, int]:
    """The T with the highest printed mIoU, by η."""
    cells = grid(evidence, "hemnet_table1")
    return {eta: max(cells, key=lambda T: cells[T][eta]) for eta in STEPS.values()}


def intermediate(evidence: Evidence) -> Finding:
    """Claim: for every T the best η lies between the smallest and the largest one."""
    best = best_steps(evidence)
    text = f"best η: {', '.join(f'{eta:g} at T = {T}' for T, eta in best.items())}"
    return Finding(every(0.1 < eta < 1 for eta in best.values()), text, "one run per cell")


def step_by_iterations(evidence: Evidence) -> Finding:
    """Claim: the best η falls with T; where it stays, nothing is decided."""
    best = best_steps(evidence)
    etas = list(best.values())
    rho = spearmanr(list(best), etas)
    steps = [None if a == b else b < a for a, b in zip(etas, etas[1:])]
    text = (
        f"Spearman's ρ of T and best η {rho.statistic:.2f} (p = {rho.pvalue:.2f}); from one T to "
    )
    text += (
        f"the next η falls {steps.count(True)} times, stays {steps.count(None)} times and rises "
    )
    text += f"{steps.count(False)} times"
    return Finding(partly(s for s in steps if s is not None), text, f"{len(best)} values of T")


def iterations_by_step(evidence: Evidence) -> Finding:
    """Claim: the best T does not rise with η."""
    best = best_iterations(evidence)
    values = list(best.values())
    text = f"best T: {', '.join(f'{T} at η = {eta:g}' for eta, T in best.items())}"
    return Finding(every(a >= b for a, b in zip(values, values[1:])), text, "one run per cell")


def more_iterations(evidence: Evidence) -> Finding:
    """Claim: more iterations in evaluation than in training help, except at η = 0.2."""
    cells, best = grid(evidence, "hemnet_table2"), best_iterations(evidence)
    cases, texts = [], []
    for eta, T in best.items():
        gain = max(by_step[eta] for t, by_step in cells.items() if t > T) - cells[T][eta]
        cases.append((gain > 0) == (eta != 0.2))
        texts.append(f"η = {eta:g}: {gain:+.2f}")
    return Finding(
        every(cases), f"best larger T against T of training: {'; '.join(texts)}", "1 run"
    )


def evaluated(evidence: Evidence) -> Finding:
    """Claim: evaluation with 6 and 12 iterations is better than with the 3 of training."""
    cells, labels = evidence.measured("seg_subset_eval"), evidence.labels("seg_subset_eval")
    found = {
        f"{labels[key]}, {column}": compare(cells["", key, column], cells["", key, "T=3"])
        for key in ("hem", "em", "em_gradient")
        for column in ("T=6", "T=12")
    }
    text = "; ".join(f"{name} against T=3: {c.text}" for name, c in found.items())
    return Finding(directions(list(found.values())), text, cells.seeds)


def rises_and_falls(evidence: Evidence) -> Finding:
    """Claim: the mIoU rises from T to T before the best one, and falls after it."""
    cells, cases, texts = grid(evidence, "hemnet_table1"), [], []
    for eta, T in best_iterations(evidence).items():
        column = [(t, by_step[eta]) for t, by_step in cells.items()]
        steps = [(b > a) == (t <= T) for (_, a), (t, b) in zip(column, column[1:])]
        cases += steps
        texts.append(f"{share(steps)} at η = {eta:g} (best T = {T})")
    text = f"rises before the best T and falls after it in {share(cases, 'steps of T')}: "
    return Finding(partly(cases), text + ", ".join(texts), "one run per cell")


def too_many(evidence: Evidence) -> Finding:
    """Claim: the mIoU falls again at the largest T in evaluation."""
    cells = grid(evidence, "hemnet_table2")
    last = max(cells)
    falls = {
        e: max(by_step[e] for by_step in cells.values()) - cells[last][e] for e in STEPS.values()
    }
    text = f"highest against T = {last}: {_listed(falls)}"
    return Finding(partly(fall > 0 for fall in falls.values()), text, "one run per cell")


def _listed(by_step: dict[float, float]) -> str:
    return ", ".join(f"{value:.2f} at η = {eta:g}" for eta, value in by_step.items())


_printed = partial(Claim, "HEMNet", command="make table NAME=hemnet_table1")
CLAIMS = [
    _printed(
        "hem_eta",
        "5.2, Table 1",
        "The highest mIoU is at an intermediate η.",
        "The printed table.",
        intermediate,
    ),
    _printed(
        "hem_eta_by_t",
        "5.2, Table 1",
        "The best η falls as T grows.",
        "The printed table.",
        step_by_iterations,
    ),
    _printed(
        "hem_t_by_eta",
        "5.2, Table 1",
        "The best T is larger for a smaller η.",
        "The printed table.",
        iterations_by_step,
    ),
    _printed(
        "hem_more_t",
        "5.2, Table 2",
        "More iterations in evaluation than in training help, except at η = 0.2.",
        "The printed table.",
        more_iterations,
        command="make table NAME=hemnet_table2",
    ),
    _printed(
        "hem_t",
        "5.2, Table 1",
        "For every η the mIoU rises with T up to a point and then falls.",
        "The printed table, from each T to the next.",
        rises_and_falls,
    ),
    _printed(
        "hem_too_many_t",
        "5.2, Table 2",
        "Very many iterations in evaluation make the mIoU fall again.",
        "The printed table: T = 16 against the highest value.",
        too_many,
        command="make table NAME=hemnet_table2",
    ),
    _printed(
        "hem_more_t_subset",
        "5.2, Table 2",
        "More iterations in evaluation than in training help, measured.",
        "VOC subset, MobileNetV2, 300 iterations, trained with T = 3.",
        evaluated,
        command="make table NAME=seg_subset_eval",
        scale=SMALL,
    ),
]
