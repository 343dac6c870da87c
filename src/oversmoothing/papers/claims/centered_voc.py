"""Claims of Centered Self-Attention Layers (Ali et al., 4.2) about segmentation."""

from functools import partial
from statistics import fmean, median

from oversmoothing.papers.claims.claim import (
    Claim,
    Finding,
    directions,
    every,
    higher_in,
    share,
    tendency,
)
from oversmoothing.papers.claims.evidence import Evidence
from oversmoothing.report.verdict import Comparison, compare

SINGLE = ("rrm", "1stage", "afa", "slrnet", "toco")


def ranking(evidence: Evidence) -> Finding:
    """Claim: in the printed table only one method, a multi-stage one, is above centering."""
    printed, labels = evidence.published("table1"), evidence.labels("table1")
    texts, cases = [], []
    for column in ("val", "test"):
        ours = printed["", "ours", column]
        rows = {key: value for (_, key, c), value in printed.items() if c == column}
        above = [key for key, value in rows.items() if value > ours]
        cases.append(len([key for key in above if key not in SINGLE]) == len(above) == 1)
        names = ", ".join(labels[key] for key in above) or "none"
        texts.append(f"{column}: {names} above {ours}")
    return Finding(every(cases), "; ".join(texts), "one run each, as printed")


def means(evidence: Evidence) -> Finding:
    """Claim: the printed mIoU is the mean over the printed classes."""
    printed, labels = evidence.published("table2"), evidence.labels("table2")
    texts, cases = [], []
    for row in ("1stage", "afa", "toco", "toco_21k", "ours"):
        classes = [v for (_, key, c), v in printed.items() if key == row and c != "mIoU"]
        cases.append(abs(fmean(classes) - printed["", row, "mIoU"]) < 0.15)
        texts.append(f"{labels[row]} {fmean(classes):.2f} ({printed['', row, 'mIoU']})")
    text = f"mean of 21 classes (printed): {', '.join(texts)}"
    return Finding(every(cases), text, "as printed")


def pipeline(evidence: Evidence) -> Finding:
    """Claim: without centering the pipeline is below the median of single-stage methods."""
    value = evidence.published("table4")["", "reg", "Seg."]
    printed, labels = evidence.published("table1"), evidence.labels("table1")
    others = {key: printed["", key, "val"] for key in SINGLE}
    below = [key for key, other in others.items() if other < value]
    text = f"{value} without the term; {len(below)} of {len(others)} other single-stage methods of "
    text += f"Table 1 are below ({', '.join(labels[key] for key in below)})"
    return Finding(every([value < median(others.values())]), text, "as printed")


def differences(evidence: Evidence, pairs: dict[str, tuple[str, str, str]]) -> Finding:
    """Compares cells of the ablation on the subset: label -> first row, second row, column."""
    cells = evidence.measured("wsss_ablation")
    found: dict[str, Comparison] = {
        label: compare(cells["", a, column], cells["", b, column])
        for label, (a, b, column) in pairs.items()
    }
    return _directed(found)


def _directed(found: dict[str, Comparison]) -> Finding:
    cases = [higher_in(comparison, len(found)) for comparison in found.values()]
    text = "; ".join(f"{label}: {c.text}" for label, c in found.items())
    n = min(c.n for c in found.values())
    return Finding(
        tendency(cases), f"higher in {share(cases, 'comparisons')}: {text}", f"{n} seeds"
    )


def inner(evidence: Evidence) -> Finding:
    """Claim: Mᵐ is above M without centering, and centering raises Mᵐ."""
    cells = evidence.measured("wsss_ablation")
    found = {
        "Mᵐ against M, γ = 0": compare(cells["", "aux", "Mᵐ"], cells["", "aux", "M"]),
        "Mᵐ of γ = −1 against 0": compare(cells["", "aux_centered", "Mᵐ"], cells["", "aux", "Mᵐ"]),
    }
    return _directed(found)


def offsets(evidence: Evidence) -> Finding:
    """Claim: γ = −0.5 reaches a higher mIoU than γ = −1."""
    cells = evidence.measured("wsss_gamma")
    columns = ("CAM", "pseudo label", "seg.")
    found = {c: compare(cells["", "half", c], cells["", "full", c]) for c in columns}
    text = "; ".join(f"{column} {c.text}" for column, c in found.items())
    return Finding(directions(list(found.values())), f"γ = −0.5 against −1: {text}", cells.seeds)


def tokens(evidence: Evidence) -> Finding:
    """Compares mean cosines: in pretrained weights, and in networks trained with centering."""
    cells, scratch = evidence.measured("wsss_gamma"), evidence.measured("cls_depth_tokens")
    pairs = {
        f"pretrained, {label}": [cells["", row, "token cosine"] for row in ("none", key)]
        for key, label in (("half", "γ = −0.5"), ("full", "γ = −1"))
    } | {
        f"from scratch on digits, {column}, γ = −1":
            [scratch[block, row, column] for row in ("none", "full")]
        for block, key, column in scratch
        if key == "full" and block == "mean cosine"
    }  # fmt: skip
    texts = [f"{label} {a.mean:.2f} → {b.mean:.2f} (n = {b.n})" for label, (a, b) in pairs.items()]
    verdict = directions([compare(*pair) for pair in pairs.values()])
    return Finding(verdict, f"mean cosine after the last block: {'; '.join(texts)}", "n as given")


LABELS = {"cls": "L_cls", "aux": "with L_clsᵐ", "seg": "with L_seg", "reg": "with L_reg"}
CENTERING = {f"M, {label}": (f"{row}_centered", row, "M") for row, label in LABELS.items()}
AUXILIARY = {
    "M without L_clsᵐ against with, γ = 0": ("cls", "aux", "M"),
    "M with L_clsᵐ against without, γ = −1": ("aux_centered", "cls_centered", "M"),
}
SEGMENTATION = {
    "L_seg, M": ("seg", "aux", "M"),
    "L_reg, M": ("reg", "seg", "M"),
    "L_reg, Seg.": ("reg", "seg", "Seg."),
}
SEGMENTED = {f"Seg., {LABELS[row]}": (f"{row}_centered", row, "Seg.") for row in ("seg", "reg")}
PARADOX = {
    "with L_seg against without": ("seg", "aux", "Mᵐ"),
    "γ = 0 against −1, with L_seg": ("seg", "seg_centered", "Mᵐ"),
    "γ = 0 against −1, with L_reg": ("reg", "reg_centered", "Mᵐ"),
    "without L_reg against with": ("seg", "reg", "Mᵐ"),
}
BIG = "needs all of VOC 2012 with SBD, DeiT-S weights and a GPU; `make {} ALL=1` runs it"
_printed = partial(Claim, "Centered Self-Attention")
_subset = partial(Claim, "Centered Self-Attention", command="make table NAME=wsss_ablation")
_on = "VOC subset, DeiT-Ti, 800 iterations"
CLAIMS = [
    _printed(
        "centered_table1",
        "Table 1",
        "72.5 and 72.9 mIoU on VOC's val and test.",
        "Training at full size.",
        missing=BIG.format("table1"),
        command="make table1 ALL=1",
    ),
    _printed(
        "centered_table1_rank",
        "Table 1",
        "It is above all methods but one multi-stage one.",
        "The printed table.",
        ranking,
        command="make table1",
    ),
    _printed(
        "centered_table2",
        "Table 2",
        "The mIoU is the mean over the 21 classes.",
        "The printed table (within 0.15).",
        means,
        command="make table2",
    ),
    _printed(
        "centered_table3",
        "Table 3",
        "The pseudo labels reach 74.1 mIoU.",
        "Training at full size.",
        missing=BIG.format("table3"),
        command="make table3 ALL=1",
    ),
    _subset(
        "centered_table4",
        "Table 4",
        "Centering raises the CAM's mIoU under every combination of losses (28.1 → 56.1 …).",
        f"{_on}: γ = −1 against 0.",
        partial(differences, pairs=CENTERING),
    ),
    _subset(
        "centered_aux",
        "Table 4",
        "The auxiliary loss does not help M without centering and helps it slightly with it.",
        f"{_on}.",
        partial(differences, pairs=AUXILIARY),
    ),
    _subset(
        "centered_losses",
        "Table 4",
        "L_seg and L_reg each raise M, and L_reg raises Seg.",
        f"{_on}, without centering.",
        partial(differences, pairs=SEGMENTATION),
    ),
    _subset(
        "centered_table4_seg",
        "4.2",
        "Centering raises the mIoU of the segmentation, with L_reg and without.",
        f"{_on}: γ = −1 against 0.",
        partial(differences, pairs=SEGMENTED),
    ),
    _subset(
        "centered_inner",
        "4.2",
        "With L_cls + L_clsᵐ the inner layer's Mᵐ is much higher than M, and centering raises it.",
        f"{_on}.",
        inner,
    ),
    _subset(
        "centered_paradox",
        "4.2",
        "L_seg raises Mᵐ, yet centering and L_reg lower it (a paradox, the paper says).",
        f"{_on}: Mᵐ.",
        partial(differences, pairs=PARADOX),
    ),
    _printed(
        "centered_pipeline",
        "3.3",
        "Without the term the pipeline is not very effective.",
        "The printed Tables 1 and 4 (not very effective: below the median of the single-stage "
        "methods).",
        pipeline,
        command="make table4",
    ),
    _subset(
        "centered_gamma_voc",
        "3.2",
        "Other offsets than −1 may reach the mIoU of −1.",
        f"{_on}.",
        offsets,
        command="make table NAME=wsss_gamma",
    ),
    _subset(
        "centered_tokens",
        "Abstract, 3.2",
        "Centering keeps tokens apart in a ViT.",
        f"Mean cosine without centering and with it, after training: {_on}, from weights trained "
        "without it; small ViTs of 6 to 24 blocks on digits, from scratch.",
        tokens,
        command="make table NAME=wsss_gamma",
    ),
]
