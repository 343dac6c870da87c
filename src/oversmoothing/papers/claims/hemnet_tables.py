"""HEMNet's claims that its own tables answer, and segmentation (Song, Kim, Shim, AAAI 2021)."""

from collections.abc import Mapping
from functools import partial

from scipy.stats import spearmanr

from oversmoothing.papers.claims.claim import (
    Claim,
    Finding,
    directions,
    every,
    little,
    partly,
    share,
    tendency,
)
from oversmoothing.papers.claims.evidence import Evidence
from oversmoothing.report.verdict import compare

LITTLE = 1.0  # points of mIoU
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
        T: max(of, key=lambda eta: of[eta]) for T, of in grid(evidence, "hemnet_table1").items()
    }


def best_iterations(evidence: Evidence) -> dict[float, int]:
    """The T with the highest printed mIoU, by η."""
    cells = grid(evidence, "hemnet_table1")
    return {eta: max(cells, key=lambda T: cells[T][eta]) for eta in STEPS.values()}


def intermediate(evidence: Evidence) -> Finding:
    best = best_steps(evidence)
    text = f"best η: {', '.join(f'{eta:g} at T = {T}' for T, eta in best.items())}"
    return Finding(every(0.1 < eta < 1 for eta in best.values()), text, "one run a cell")


def step_by_iterations(evidence: Evidence) -> Finding:
    best = best_steps(evidence)
    etas = list(best.values())
    rho = spearmanr(list(best), etas)
    steps = [after <= before for before, after in zip(etas, etas[1:])]
    text = f"Spearman's ρ of T and best η {rho.statistic:.2f} (p = {rho.pvalue:.2f}); no rise in "
    text += f"{share(steps, 'steps')} from one T to the next"
    return Finding(partly(steps), text, f"{len(best)} values of T")


def iterations_by_step(evidence: Evidence) -> Finding:
    best = best_iterations(evidence)
    values = list(best.values())
    text = f"best T: {', '.join(f'{T} at η = {eta:g}' for eta, T in best.items())}"
    return Finding(every(a >= b for a, b in zip(values, values[1:])), text, "one run a cell")


def more_iterations(evidence: Evidence) -> Finding:
    cells, best = grid(evidence, "hemnet_table2"), best_iterations(evidence)
    cases, texts = [], []
    for eta, T in best.items():
        gain = max(of[eta] for t, of in cells.items() if t > T) - cells[T][eta]
        cases.append((gain > 0) == (eta != 0.2))
        texts.append(f"η = {eta:g}: {gain:+.2f}")
    return Finding(
        every(cases), f"best larger T against T of training: {'; '.join(texts)}", "1 run"
    )


def evaluated(evidence: Evidence) -> Finding:
    cells, labels = evidence.measured("seg_subset_eval"), evidence.labels("seg_subset_eval")
    found = {
        f"{labels[key]}, {column}": compare(cells["", key, column], cells["", key, "T=3"])
        for key in ("hem", "em", "em_gradient")
        for column in ("T=6", "T=12")
    }
    text = "; ".join(f"{name} against T=3: {c.text}" for name, c in found.items())
    return Finding(directions(list(found.values())), text, cells.seeds)


def channels(evidence: Evidence) -> Finding:
    of = evidence.published("hemnet_table3")
    hem, ema = of["", "hemnet_256", "SS"], of["", "emanet", "SS"]
    return Finding(every([hem > ema]), f"{hem:.2f} against {ema:.2f}", "1 run")


def scales(evidence: Evidence) -> Finding:
    of = evidence.published("hemnet_table3")
    single, several = of["", "hemnet", "SS"], of["", "emanet", "MS + Flip"]
    text = f"{single:.2f} against {several:.2f}"
    return Finding(every([single >= several - 0.1]), text, "1 run")


def order(evidence: Evidence, table: str = "seg_subset") -> Finding:
    cells, labels = evidence.measured(table), evidence.labels(table)
    found = {
        f"{labels[a]} − {labels[b]}": compare(cells["", a, "SS"], cells["", b, "SS"])
        for a, b in (("hem", "em"), ("em", "fcn"), ("hem", "fcn"), ("hem", "em_gradient"))
    }
    means = [f"{labels[key]} {m.mean:.1f}" for (_, key, c), m in cells.items() if c == "SS"]
    text = "; ".join(f"{name}: {c.text}" for name, c in found.items())
    n = min(c.n for c in found.values())
    verdict = directions(list(found.values()))
    return Finding(verdict, f"mIoU {', '.join(means)}; {text}", f"{n} seeds")


def kernel(evidence: Evidence) -> Finding:
    cells, cases, texts = evidence.measured("seg_subset"), [], []
    for column in ("SS", "MS + Flip"):
        found = compare(cells["", "hem_distance", column], cells["", "hem", column])
        cases.append(little(found, LITTLE))
        texts.append(f"{column} {found.text}")
    n = cells["", "hem_distance", "SS"].n
    return Finding(tendency(cases), f"Eq. 7 against Eq. 8: {'; '.join(texts)}", f"{n} seeds")


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
    text = evidence.path("tables/cost.md", "make figure NAME=cost").read_text("utf-8")
    lines = [
        line.strip("| ").split(" | ") for line in text.splitlines() if "HEMNet, Table 3" in line
    ]
    found = [(line[1], line[2], float(line[5].rstrip(" %"))) for line in lines]
    text = "; ".join(f"{what} {printed}: {off:g} % off at best" for what, printed, off in found)
    return Finding(partly(off < 3 for *_, off in found), text, "counted")


_printed = partial(Claim, "HEMNet", command="make table NAME=hemnet_table1")
_subset = partial(Claim, "HEMNet", command="make table NAME=seg_subset")
_missing = "needs {} and GPUs; `make table NAME={} ALL=1` runs it"
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
    _subset(
        "hem_more_t_subset",
        "5.2, Table 2",
        "More iterations in evaluation than in training help, measured.",
        "VOC subset, MobileNetV2, 300 iterations, trained with T = 3.",
        evaluated,
        command="make table NAME=seg_subset_eval",
    ),
    _printed(
        "hem_channels",
        "5.3, Table 3",
        "HEMNet with 256 channels is better than EMANet with 512.",
        "The printed table, single scale.",
        channels,
        command="make table NAME=hemnet_table3",
    ),
    _printed(
        "hem_scales",
        "5.3, Table 3",
        "HEMNet at a single scale is on par with EMANet at several scales.",
        "The printed table (within 0.1 counts as on par).",
        scales,
        command="make table NAME=hemnet_table3",
    ),
    _subset(
        "hem_order",
        "Tables 3 to 6",
        "HEM is better than EMANet, and EMANet than the network without a unit.",
        "VOC subset, MobileNetV2, 300 iterations, single scale.",
        order,
    ),
    _subset(
        "hem_order_long",
        "Tables 3 to 6",
        "HEM is better than EMANet, and EMANet than the network without a unit: the same in a "
        "longer training.",
        "VOC subset, MobileNetV2, 3,000 iterations, single scale.",
        partial(order, table="seg_long"),
        command="make table NAME=seg_long",
    ),
    _subset(
        "hem_kernel_miou",
        "3.2",
        "The RBF kernel of Eq. 7 or the dot product of Eq. 8 makes little difference to results.",
        "VOC subset, MobileNetV2, 300 iterations, `aggregator.kernel=distance` (little: the "
        "95 % interval is within 1 point).",
        kernel,
    ),
    _printed(
        "hem_tables",
        "Tables 1 to 6",
        "The mIoU on VOC, PASCAL Context and COCO-Stuff.",
        "Training at full size.",
        missing=_missing.format("the data sets, ResNet weights", "hemnet_table3"),
    ),
    _printed(
        "hem_extra_cost",
        "4.2, Table 3",
        "HEM costs hardly more computation and memory than unrolled EM.",
        "Counted at 513 × 513 (below 5 % counts as hardly more).",
        extra_cost,
        command="make figure NAME=cost",
    ),
    _printed(
        "hem_cost",
        "Table 3",
        "FLOPs, memory and parameters of the networks.",
        "Counted in several ways; the closest count for each printed column (3 % counts as equal).",
        cost,
        command="make figure NAME=cost",
    ),
]
