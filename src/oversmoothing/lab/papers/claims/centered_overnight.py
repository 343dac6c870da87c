"""Claims of Centered Self-Attention Layers (Ali et al., 4.2), tested by two longer trainings."""

import math
from collections.abc import Sequence
from functools import partial
from statistics import fmean

from oversmoothing.lab.papers.claims.claim import (
    OWN,
    SMALL,
    Claim,
    Finding,
    directions,
    judged,
    share,
)
from oversmoothing.lab.papers.claims.evidence import Cells, Evidence, NotRecordedError
from oversmoothing.lab.report.verdict import Comparison, Measured, compare, paired

TABLE, BASE = "wsss_overnight", "none"
METRICS = {"CAM": "val_cam_best_common_miou", "seg.": "val_seg_common_miou"}
BOUNDARIES = ("CAM boundary", "pseudo label boundary", "seg. boundary")
Curve = dict[float, float]  # iteration -> percent
END = math.inf


def rows(cells: Cells) -> list[str]:
    """Returns the rows with γ ≠ 0."""
    return list(dict.fromkeys(key for _, key, _ in cells if key != BASE))


def above_base(
    evidence: Evidence, columns: Sequence[str], only: Sequence[str] = (), table: str = TABLE
) -> Finding:
    """Compares all or some rows with γ = 0, seed by seed, at the end of the training."""
    cells, labels = evidence.measured(table), evidence.labels(table)
    found: dict[str, Comparison] = {
        f"{labels[row]}, {column}": compare(cells["", row, column], cells["", BASE, column])
        for column in columns
        for row in only or rows(cells)
        if only or ("", row, column) in cells
    }
    if not found:
        raise NotRecordedError(f"{table}: only γ = 0 is run; `make table NAME={table}` runs it")
    text = "; ".join(f"{name}: {c.text}" for name, c in found.items())
    means = ", ".join(f"{cells['', BASE, column].mean:.1f}" for column in columns)
    return Finding(directions([*found.values()]), f"γ = 0: {means} %; {text}", "n as given")


def curves(evidence: Evidence, measured: Measured, metric: str) -> dict[str, Curve]:
    """Maps seeds to the metric by iteration; that of the trained network is at END."""
    found: dict[str, Curve] = {}
    runs = {run["id"]: run["seeds"] for run in evidence.runs(TABLE)}
    for seed, result in runs[measured.run_id].items():
        points = {
            point["step"]: point[metric] for point in result.get("history", []) if metric in point
        }
        found[seed] = points | ({END: result[metric]} if points and metric in result else {})
    return found


def catching_up(evidence: Evidence) -> Finding:
    """Whether the difference to γ = 0 rises from the first to the last common evaluation."""
    cells, labels = evidence.measured(TABLE), evidence.labels(TABLE)
    changes: list[Comparison] = []
    texts: list[str] = []
    for column, metric in METRICS.items():
        base = curves(evidence, cells["", BASE, column], metric)
        for row in rows(cells):
            gaps = differences(curves(evidence, cells["", row, column], metric), base)
            if gaps:
                ends = {seed: gap[max(gap)] for seed, gap in gaps.items()}
                starts = {seed: gap[min(gap)] for seed, gap in gaps.items()}
                changes.append(paired(ends, starts))
                steps = sorted(set.intersection(*map(set, gaps.values())))
                path = " ".join(f"{fmean(gap[s] for gap in gaps.values()):+.1f}" for s in steps)
                texts.append(f"{labels[row]}, {column}: {path}, change {changes[-1].text}")
    if not changes:
        raise NotRecordedError(
            f"{TABLE}: no evaluation during the training is recorded; `make table NAME={TABLE}` "
            "runs it"
        )
    text = f"rises in {share(judged(changes), 'cases')}; points to γ = 0 from evaluation to "
    return Finding(directions(changes), f"{text}evaluation: {'; '.join(texts)}", "n as given")


def differences(ours: dict[str, Curve], base: dict[str, Curve]) -> dict[str, Curve]:
    """Maps seeds to the difference of two curves; leaves out those with less than two points."""
    found = {
        seed: {step: curve[step] - base[seed][step] for step in curve if step in base[seed]}
        for seed, curve in ours.items()
        if seed in base
    }
    return {seed: gap for seed, gap in found.items() if len(gap) > 1}


_claim = partial(Claim, "Centered Self-Attention", command=f"make table NAME={TABLE}")
_on = (
    "VOC subset, DeiT-Ti, 10,000 iterations: each γ against 0, at the best rate of its own search "
    "(and γ = −0.5 at the second-best, which is that of γ = 0)"
)
CLAIMS = [
    _claim(
        "centered_overnight_cam",
        "4.2, Table 4",
        "Centering raises the CAM's mIoU (a longer training).",
        f"{_on}, at the best of nine thresholds.",
        partial(above_base, columns=["CAM"]),
        scale=SMALL,
    ),
    _claim(
        "centered_overnight_seg",
        "4.2, Table 4",
        "Centering raises the mIoU of the segmentation (a longer training).",
        f"{_on}, single scale.",
        partial(above_base, columns=["seg."]),
        scale=SMALL,
    ),
    Claim(
        "Centered Self-Attention",
        "centered_448",
        "4.2, Table 4",
        "Centering raises the mIoU of CAM and segmentation (crops of 448 px, as in the paper).",
        "VOC subset, DeiT-Ti, 3,400 iterations, the same rate for all: each γ against 0; CAM at "
        "the best of nine thresholds, segmentation at a single scale.",
        partial(
            above_base,
            columns=["CAM", "seg."],
            only=["half", "full", "adapted", "warm_up"],
            table="wsss_448",
        ),
        command="make table NAME=wsss_448 ALL=1",
        scale=SMALL,
    ),
    Claim(
        OWN,
        "centered_overnight_curve",
        "on Centered Self-Attention, 4.2, which trains on eight times as many crops",
        "The longer the training, the better centering does against γ = 0.",
        f"{_on}: the change of the difference in CAM and segmentation from the first evaluation to "
        "the last, seed by seed.",
        catching_up,
        command=f"make table NAME={TABLE}",
        scale=SMALL,
    ),
    _claim(
        "centered_fig2",
        "Figure 2 (there against ToCo; here against γ = 0)",
        "CAMs and masks have more precise boundaries with centering.",
        f"{_on}, γ = −1: boundary IoU (bands of 2 % of the diagonal) of CAM (threshold 0.5), "
        "pseudo label and segmentation.",
        partial(above_base, columns=BOUNDARIES, only=["full"]),
        scale=SMALL,
    ),
]
