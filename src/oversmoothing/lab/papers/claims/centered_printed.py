"""Claims of Centered Self-Attention Layers (Ali et al., 3.3, 4.2) on its printed Tables 1 to 4."""

from functools import partial
from statistics import fmean, median

from oversmoothing.lab.papers.claims.claim import Claim, Finding, every, partly
from oversmoothing.lab.papers.claims.evidence import Evidence

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
    """Claim: without centering the CAM is much worse, and the pipeline below the other methods."""
    ablation = evidence.published("table4")
    value, cams = (
        ablation["", "reg", "Seg."],
        [ablation["", k, "M"] for k in ("cls", "cls_centered")],
    )
    printed, labels = evidence.published("table1"), evidence.labels("table1")
    others = {key: printed["", key, "val"] for key in SINGLE}
    below = [key for key, other in others.items() if other < value]
    text = f"CAM {cams[0]} without the term, {cams[1]} with it; the whole pipeline reaches {value} "
    text += f"without it, {len(below)} of {len(others)} other single-stage methods of Table 1 are "
    text += f"below ({', '.join(labels[key] for key in below)})"
    return Finding(partly([cams[0] < cams[1], value < median(others.values())]), text, "as printed")


BIG = "needs all of VOC 2012 with SBD, DeiT-S weights and a GPU; `make {} ALL=1` runs it"
_printed = partial(Claim, "Centered Self-Attention")
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
        "It is above all methods except one multi-stage method.",
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
    _printed(
        "centered_pipeline",
        "3.3",
        "Without the term the pipeline is not very effective.",
        "The printed Tables 1 and 4: the CAM, and the segmentation against the median of the "
        "single-stage methods.",
        pipeline,
        command="make table4",
    ),
]
