"""Claims of HEMNet (Song, Kim, Shim, AAAI 2021) that no rule of ``claims.yaml`` decides.

From Figure 3 (ELBO and gradients on features of the VOC subset), its printed tables over η and T
(5.2) and of accuracy (5.3), and counted costs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from scipy.stats import spearmanr

from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.claims.rules import Finding, every, partly, share

NEGLIGIBLE = (
    0.1  # ratio of the E-steps' gradient to the N-steps', or of the last N-step to the first
)
SMALL_GRADIENT = 1e-6  # the caption of Figure 3 says: of order 1e-7
STEPS = {"η=0.1": 0.1, "η=0.2": 0.2, "η=0.4": 0.4, "η=0.8": 0.8, "EMANet": 1.0}
LARGE, ROUNDING = 1.0, 0.005  # points of mIoU

# Figure 3


def moments(evidence: Evidence) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields a training step of Figure 3, and its numbers by rising η."""
    for moment, by_step in evidence.json("hem_fig3")["numbers"].items():
        yield moment, [by_step[eta] for eta in sorted(by_step, key=float)]


def images(evidence: Evidence) -> str:
    """Number of images behind Figure 3, in words."""
    return f"{evidence.json('hem_fig3')['samples']} images"


def elbo_on_features(evidence: Evidence) -> Finding:
    """Claim: no E-step lowers the ELBO on real features."""
    texts, cases = [], []
    for moment, rows in moments(evidence):
        falls = [row["e_falls"] for row in rows]
        cases += [fall == 0 for fall in falls]
        texts.append(f"{100 * min(falls):.0f} to {100 * max(falls):.0f} % after {moment} steps")
    text = f"E-steps that lower it: {'; '.join(texts)}"
    return Finding(every(cases), text, f"{images(evidence)}, 5 values of η")


def slower_with_small_steps(evidence: Evidence) -> Finding:
    """Claim: the ELBO takes no fewer iterations to its maximum with a smaller η."""
    cases, texts = [], []
    for moment, rows in moments(evidence):
        peaks = [row["peak"] for row in rows]
        cases += [a >= b for a, b in zip(peaks, peaks[1:])]
        texts.append(f"{', '.join(map(str, peaks))} after {moment} steps")
    text = f"iteration of the highest ELBO by rising η: {'; '.join(texts)}"
    return Finding(partly(cases), text, images(evidence))


def later_iterations(evidence: Evidence) -> Finding:
    """Claim: the last N-step raises the ELBO by less than a tenth of what the first one does."""
    cases, texts = [], []
    for moment, by_step in evidence.json("hem_fig3")["profiles"].items():
        gains = [[b - a for a, b in by_step[eta]["elbo"]] for eta in sorted(by_step, key=float)]
        shares = [of[-1] / of[0] for of in gains]
        cases += [value < NEGLIGIBLE for value in shares]
        each = ", ".join(f"{100 * value:.2g}" for value in shares)
        texts.append(f"{each} % after {moment} steps")
    text = f"the last N-step against the first by rising η: {'; '.join(texts)}; below "
    text += f"{100 * NEGLIGIBLE:g} % in {share(cases, 'cases')}"
    return Finding(partly(cases), text, f"{images(evidence)}, 5 values of η at 3 moments")


def share_of_early_iterations(evidence: Evidence) -> Finding:
    """Claim: early iterations have a larger share of the gradient with a smaller η."""
    cases, texts = [], []
    for moment, rows in moments(evidence):
        found = [row["first_half"] for row in rows]
        cases += [a > b for a, b in zip(found, found[1:])]
        texts.append(f"{', '.join(f'{100 * v:.1f}' for v in found)} % after {moment} steps")
    expected = ", ".join(f"{100 * row['first_half_eq18']:.2g}" for row in rows)
    text = f"share of the first half by rising η: {'; '.join(texts)}; Eq. 18: {expected} %; "
    text += f"it falls in {share(cases, 'steps of η')}"
    return Finding(partly(cases), text, images(evidence))


def negligible_e_steps(evidence: Evidence) -> Finding:
    """Claim: the gradient through E-steps is negligible against that through N-steps."""
    ratios = [row["e_over_n"] for _, rows in moments(evidence) for row in rows]
    cases = [ratio < NEGLIGIBLE for ratio in ratios]
    text = (
        f"{100 * min(ratios):.0f} to {100 * max(ratios):.0f} % of the gradient through N-steps, "
        f"below {100 * NEGLIGIBLE:g} % in {share(cases, 'cases')}"
    )
    return Finding(every(cases), text, f"{images(evidence)}, 5 values of η at 3 moments")


def size_of_e_steps(evidence: Evidence) -> Finding:
    """Claim: the largest gradient through an E-step is of order 1e-7."""
    sizes = [row["largest_e_step"] for _, rows in moments(evidence) for row in rows]
    cases = [size < SMALL_GRADIENT for size in sizes]
    text = f"{min(sizes):.0e} to {max(sizes):.0e}, below {SMALL_GRADIENT:g} in "
    text += share(cases, "cases")
    return Finding(partly(cases), text, f"{images(evidence)}, 5 values of η at 3 moments")


def total_gradients(evidence: Evidence) -> Finding:
    """Claim: for some pair of steps η, the smaller η has no larger total gradient."""
    ratios, lower = [], []
    for _, rows in moments(evidence):
        values = [row["total"] for row in rows]
        ratios.append(f"{max(values) / min(values):.2f}")
        lower += [smaller <= larger for smaller, larger in zip(values, values[1:])]
    text = (
        f"a smaller η has no larger total in {share(lower, 'steps of η')}; largest over smallest "
        f"total: {', '.join(ratios)}"
    )
    return Finding(every([any(lower)]), text, f"{images(evidence)}, 3 moments")


# Tables 1 and 2: iterations T and step sizes η, as printed


def grid(evidence: Evidence, table: str) -> dict[int, dict[float, float]]:
    """Returns mIoU by T and η of a printed table."""
    found: dict[int, dict[float, float]] = {}
    for (_, row, column), value in evidence.published(table).items():
        found.setdefault(int(row.removeprefix("T=")), {})[STEPS[column]] = value
    return dict(sorted(found.items()))


def best_steps(evidence: Evidence) -> dict[int, float]:
    """Returns the η with the highest printed mIoU, by T."""
    cells = grid(evidence, "hemnet_table1")
    return {T: max(by_step, key=by_step.__getitem__) for T, by_step in cells.items()}


def best_iterations(evidence: Evidence) -> dict[float, int]:
    """Returns the T with the highest printed mIoU, by η."""
    cells = grid(evidence, "hemnet_table1")
    return {eta: max(cells, key=lambda T: cells[T][eta]) for eta in STEPS.values()}


def intermediate_step(evidence: Evidence) -> Finding:
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
    falls, stays, rises = (steps.count(case) for case in (True, None, False))
    text = (
        f"Spearman's ρ of T and best η {rho.statistic:.2f} (p = {rho.pvalue:.2f}); from one T to "
        f"the next η falls {falls} times, stays {stays} times and rises {rises} times"
    )
    verdict = partly(step for step in steps if step is not None)
    return Finding(verdict, text, f"{len(best)} values of T")


def iterations_by_step(evidence: Evidence) -> Finding:
    """Claim: the best T does not rise with η."""
    best = best_iterations(evidence)
    values = list(best.values())
    text = f"best T: {', '.join(f'{T} at η = {eta:g}' for eta, T in best.items())}"
    return Finding(every(a >= b for a, b in zip(values, values[1:])), text, "one run per cell")


def more_iterations(evidence: Evidence) -> Finding:
    """Claim: more iterations in evaluation than in training help, except at η = 0.2."""
    cells, cases, texts = grid(evidence, "hemnet_table2"), [], []
    for eta, T in best_iterations(evidence).items():
        gain = max(by_step[eta] for t, by_step in cells.items() if t > T) - cells[T][eta]
        cases.append((gain > 0) == (eta != 0.2))
        texts.append(f"η = {eta:g}: {gain:+.2f}")
    text = f"best larger T against T of training: {'; '.join(texts)}"
    return Finding(every(cases), text, "1 run")


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


def too_many_iterations(evidence: Evidence) -> Finding:
    """Claim: the mIoU falls again at the largest T in evaluation."""
    cells = grid(evidence, "hemnet_table2")
    last = max(cells)
    falls = {
        eta: max(by_step[eta] for by_step in cells.values()) - cells[last][eta]
        for eta in STEPS.values()
    }
    each = ", ".join(f"{value:.2f} at η = {eta:g}" for eta, value in falls.items())
    verdict = partly(fall > 0 for fall in falls.values())
    return Finding(verdict, f"highest against T = {last}: {each}", "one run per cell")


# Accuracy and cost


def printed_order(
    evidence: Evidence, higher: list[str], lower: list[str], slack: float = 0.0
) -> Finding:
    """Claim: one cell of the printed Table 3 is above another, or at most ``slack`` below.

    Args:
        higher, lower: row and column.
    """
    printed = evidence.published("hemnet_table3")
    a, b = (printed["", row, column] for row, column in (higher, lower))
    holds = a >= b - slack if slack else a > b
    return Finding(every([holds]), f"{a:.2f} against {b:.2f}", "1 run")


def large_margin(evidence: Evidence) -> Finding:
    """Claim: HEMNet is ahead by a large margin in the printed tables."""
    third = evidence.published("hemnet_table3")
    gaps = {}
    for column in ("SS", "MS + Flip"):
        others = [v for (_, key, c), v in third.items() if c == column and "hemnet" not in key]
        gaps[f"Table 3, {column}"] = third["", "hemnet", column] - max(others)
    for number in (4, 5, 6):
        cells = evidence.published(f"hemnet_table{number}")
        gaps[f"Table {number}"] = cells["", "hemnet", "mIoU"] - cells["", "emanet", "mIoU"]
    text = ", ".join(f"{name}: {gap:+.1f}" for name, gap in gaps.items())
    return Finding(partly(gap > LARGE - ROUNDING for gap in gaps.values()), text, "1 run")


def extra_cost(evidence: Evidence) -> Finding:
    """Compares HEM with unrolled EM, whose gradients pass through all iterations as HEM's do."""
    rows = {(r["dim"], r["aggregator"]): r["parts"] for r in evidence.json("cost")["rows"]}
    texts, cases = [], []
    for dim in (256, 512):
        hem, unrolled, emanet = (rows[dim, key] for key in ("hem", "em_gradient", "em"))
        kept = _saved(hem) / _saved(unrolled)
        flops = hem["unit"]["macs"] / unrolled["unit"]["macs"]
        cases += [flops < 1.05, kept < 1.05]
        texts.append(
            f"{dim} channels: multiply-adds × {flops:.2f}, saved activations of the added layers "
            f"× {kept:.2f} (× {_saved(hem) / _saved(emanet):.2f} of EMANet, which has no gradients)"
        )
    return Finding(partly(cases), "; ".join(texts), "counted, one image")


def _saved(parts: Mapping[str, Mapping[str, float]]) -> float:
    return sum(part["saved"] for name, part in parts.items() if name != "backbone")


def cost(evidence: Evidence) -> Finding:
    """Claim: our counts of FLOPs, memory and parameters are within 3 % of the printed ones."""
    text = evidence.path("tables/cost.md", "oversmoothing figure cost").read_text("utf-8")
    lines = [
        line.strip("| ").split(" | ") for line in text.splitlines() if "HEMNet, Table 3" in line
    ]
    found = [(line[1], line[2], float(line[5].rstrip(" %"))) for line in lines]
    text = "; ".join(f"{what} {printed}: {off:g} % off at best" for what, printed, off in found)
    return Finding(partly(off < 3 for *_, off in found), text, "counted")
