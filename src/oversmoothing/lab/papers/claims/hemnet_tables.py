"""HEMNet's claims about accuracy and cost (Song, Kim, Shim, AAAI 2021, 5.3)."""

from collections.abc import Mapping, Sequence
from functools import partial

from oversmoothing.lab.papers.claims.claim import (
    OWN,
    SMALL,
    Claim,
    Finding,
    directions,
    every,
    judged,
    little,
    partly,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.report.verdict import compare

LITTLE = LARGE = 1.0  # points of mIoU
ORDER = [("hem", "em")]  # the better row of each pair first
UNITS = [("em", "fcn"), ("hem", "fcn")]
COLUMNS = ("SS", "MS + Flip")
ROUNDING = 0.005


def channels(evidence: Evidence) -> Finding:
    """Claim: HEMNet with 256 channels is above EMANet with 512 in the printed table."""
    printed = evidence.published("hemnet_table3")
    hem, ema = printed["", "hemnet_256", "SS"], printed["", "emanet", "SS"]
    return Finding(every([hem > ema]), f"{hem:.2f} against {ema:.2f}", "1 run")


def scales(evidence: Evidence) -> Finding:
    """Claim: HEMNet at one scale reaches EMANet at several scales in the printed table."""
    printed = evidence.published("hemnet_table3")
    single, several = printed["", "hemnet", "SS"], printed["", "emanet", "MS + Flip"]
    text = f"{single:.2f} against {several:.2f}"
    return Finding(every([single >= several - 0.1]), text, "1 run")


def margin(evidence: Evidence) -> Finding:
    """Claim: HEMNet is ahead by a large margin in the printed tables."""
    third = evidence.published("hemnet_table3")
    gaps = {}
    for column in COLUMNS:
        others = [v for (_, key, c), v in third.items() if c == column and "hemnet" not in key]
        gaps[f"Table 3, {column}"] = third["", "hemnet", column] - max(others)
    for number in (4, 5, 6):
        cells = evidence.published(f"hemnet_table{number}")
        gaps[f"Table {number}"] = cells["", "hemnet", "mIoU"] - cells["", "emanet", "mIoU"]
    text = ", ".join(f"{name}: {gap:+.1f}" for name, gap in gaps.items())
    return Finding(partly(gap > LARGE - ROUNDING for gap in gaps.values()), text, "1 run")


def order(
    evidence: Evidence, table: str = "seg_subset", rows: Sequence[tuple[str, str]] = ORDER
) -> Finding:
    """Claim: the first row of each pair is above the second, compared over the same seeds."""
    cells, labels = evidence.measured(table), evidence.labels(table)
    found = {
        f"{labels[a]} − {labels[b]}, {column}": compare(cells["", a, column], cells["", b, column])
        for a, b in rows
        for column in COLUMNS
    }
    text = "; ".join(f"{name}: {c.text}" for name, c in found.items())
    least, most = (of(c.n for c in found.values()) for of in (min, max))
    n = f"{most} seeds" if least == most else f"{least} to {most} seeds"
    higher = share(judged([*found.values()]), "comparisons")
    return Finding(directions([*found.values()]), f"mIoU higher in {higher}: {text}", n)


def kernel(evidence: Evidence) -> Finding:
    """Claim: the kernel of the E-step changes the mIoU by at most 1 point."""
    cells, cases, texts = evidence.measured("seg_subset"), [], []
    for column in COLUMNS:
        found = compare(cells["", "hem_distance", column], cells["", "hem", column])
        cases.append(little(found, LITTLE))
        texts.append(f"{column} {found.text}")
    n = cells["", "hem_distance", "SS"].n
    return Finding(
        tendency(cases), f"Gaussian kernel against dot product: {'; '.join(texts)}", f"{n} seeds"
    )


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
    text = evidence.path("tables/cost.md", "make figure NAME=cost").read_text("utf-8")
    lines = [
        line.strip("| ").split(" | ") for line in text.splitlines() if "HEMNet, Table 3" in line
    ]
    found = [(line[1], line[2], float(line[5].rstrip(" %"))) for line in lines]
    text = "; ".join(f"{what} {printed}: {off:g} % off at best" for what, printed, off in found)
    return Finding(partly(off < 3 for *_, off in found), text, "counted")


_printed = partial(Claim, "HEMNet", command="make table NAME=hemnet_table3")
_subset = partial(Claim, "HEMNet", command="make table NAME=seg_subset")
_missing = "needs {} and GPUs; `make table NAME={} ALL=1` runs it"
CLAIMS = [
    _printed(
        "hem_channels",
        "5.3, Table 3",
        "HEMNet with 256 channels is better than EMANet with 512.",
        "The printed table, single scale.",
        channels,
    ),
    _printed(
        "hem_scales",
        "5.3, Table 3",
        "HEMNet at a single scale is on par with EMANet at several scales.",
        "The printed table (within 0.1 counts as on par).",
        scales,
    ),
    _printed(
        "hem_margin",
        "5.3",
        "HEMNet is better than all others by a large margin on VOC (Table 3), and significantly "
        "better than EMANet in Tables 4 to 6.",
        f"The printed tables ({LARGE:g} point or more counts as large and as significant).",
        margin,
    ),
    _subset(
        "hem_order",
        "Tables 3 to 6",
        "HEM is better than EMANet.",
        "VOC subset, MobileNetV2, 300 iterations.",
        order,
        scale=SMALL,
    ),
    _subset(
        "hem_order_long",
        "Tables 3 to 6",
        "HEM is better than EMANet: the same in a longer training.",
        "VOC subset, MobileNetV2, 3,000 iterations.",
        partial(order, table="seg_long"),
        command="make table NAME=seg_long",
        scale=SMALL,
    ),
    Claim(
        OWN,
        "hem_units",
        "on HEMNet, whose tables have no network without a unit",
        "EMANet and HEM are better than the network without a unit.",
        "VOC subset, MobileNetV2, 300 iterations.",
        partial(order, rows=UNITS),
        command="make table NAME=seg_subset",
        scale=SMALL,
    ),
    _subset(
        "hem_kernel_miou",
        "3.2",
        "The RBF kernel of Eq. 7 or the dot product of Eq. 8 makes little difference to results.",
        "VOC subset, MobileNetV2, 300 iterations: `aggregator.kernel=distance`, which is Eq. 7 "
        "with twice its σ², against Eq. 8 (little: the 95 % interval is within 1 point).",
        kernel,
        scale=SMALL,
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
        "4.2",
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
