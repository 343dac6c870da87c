"""Claims of Centered Self-Attention Layers (Ali et al., 4.2) about segmentation."""

from functools import partial

from oversmoothing.lab.papers.claims.claim import (
    OWN,
    SMALL,
    Claim,
    Finding,
    below,
    directions,
    judged,
    partly,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.report.verdict import Comparison, Measured, compare


def differences(evidence: Evidence, pairs: dict[str, tuple[str, str, str]]) -> Finding:
    """Compares cells of the ablation on the subset: label -> first row, second row, column."""
    cells = evidence.measured("wsss_ablation")
    found: dict[str, Comparison] = {
        label: compare(cells["", a, column], cells["", b, column])
        for label, (a, b, column) in pairs.items()
    }
    return _directed(found)


def _directed(found: dict[str, Comparison]) -> Finding:
    cases = judged([*found.values()])
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


def auxiliary(evidence: Evidence) -> Finding:
    """Claim: L_clsᵐ raises M by less than a point at γ = 0, and raises it at γ = −1."""
    cells = evidence.measured("wsss_ablation")
    plain, centered = (
        compare(cells["", f"aux{row}", "M"], cells["", f"cls{row}", "M"])
        for row in ("", "_centered")
    )
    text = f"M with L_clsᵐ against without: γ = 0 {plain.text}; γ = −1 {centered.text}"
    verdict = tendency([below(plain, LITTLE), *judged([centered])])
    return Finding(verdict, text, f"{plain.n} seeds")


def paradox(evidence: Evidence) -> Finding:
    """Claim: L_seg raises Mᵐ; centering and L_reg raise M and lower Mᵐ."""
    cells = evidence.measured("wsss_ablation")
    found = {
        f"{label}, {column}": compare(cells["", a, column], cells["", b, column])
        for label, (a, b) in PARADOX.items()
        for column in ("M", "Mᵐ")
    }
    gain = compare(cells["", "seg", "Mᵐ"], cells["", "aux", "Mᵐ"])
    first, *rest = judged([gain, *found.values()])
    cases = [first, *map(_opposite, rest[::2], rest[1::2])]
    text = "; ".join(f"{label}: {c.text}" for label, c in found.items())
    text = f"L_seg, Mᵐ: {gain.text}; {text}"
    return Finding(tendency(cases), f"so in {share(cases, 'steps')}: {text}", f"{gain.n} seeds")


def _opposite(rises: bool | None, also: bool | None) -> bool | None:
    """Whether the first rises and the second falls; None if undecided."""
    if rises is False or also is True:
        return False
    return True if rises and also is False else None


def uniform(evidence: Evidence) -> Finding:
    """Claim: tokens after the last block are more alike than after the first one."""
    lines = evidence.csv("figures/wsss_tokens.csv", "make fig2")
    cases, texts = [], []
    for moment in ("before", "after"):
        values = [
            float(line["mean"])
            for line in lines
            if (line["label"], line["moment"], line["metric"])
            == ("without centering", moment, "cosine")
        ]
        cases.append(values[-1] > values[0])
        path = " → ".join(f"{v:.2f}" for v in (values[0], min(values), values[-1]))
        texts.append(f"{moment} training {path}")
    text = f"mean cosine after the first block, the lowest, after the last: {'; '.join(texts)}"
    return Finding(partly(cases), text, f"{lines[0]['seeds']} seeds")


def offsets(evidence: Evidence) -> Finding:
    """Question: γ = −0.5 reaches a higher mIoU than γ = 0."""
    cells = evidence.measured("wsss_gamma")
    columns = ("CAM", "pseudo label", "seg.")
    found = {c: compare(cells["", "half", c], cells["", "none", c]) for c in columns}
    text = "; ".join(f"{column} {c.text}" for column, c in found.items())
    return Finding(directions(list(found.values())), f"γ = −0.5 against 0: {text}", cells.seeds)


def tokens(evidence: Evidence) -> Finding:
    """Claim: with centering the mean cosine is lower and the effective rank higher."""
    cells, scratch = evidence.measured("wsss_gamma"), evidence.measured("cls_depth_tokens")
    pairs: dict[str, list[Measured]] = {}  # without centering, with it
    for block, column in (("mean cosine", "token cosine"), ("effective rank", "token rank")):
        for key, label in (("half", "γ = −0.5"), ("full", "γ = −1")):
            pairs[f"pretrained, {label}, {block}"] = [
                cells["", row, column] for row in ("none", key)
            ]
        for depth in (place[2] for place in scratch if place[:2] == (block, "full")):
            pairs[f"from scratch on digits, {depth}, {block}"] = [
                scratch[block, row, depth] for row in ("none", "full")
            ]
    lower_first = [pair if "cosine" in label else pair[::-1] for label, pair in pairs.items()]
    cases = judged([compare(*pair) for pair in lower_first])
    texts = [f"{label} {a.mean:.3g} → {b.mean:.3g} (n = {b.n})" for label, (a, b) in pairs.items()]
    text = f"tokens differ more in {share(cases, 'comparisons')}: {'; '.join(texts)}"
    return Finding(tendency(cases), text, "n as given")


LABELS = {"cls": "L_cls", "aux": "with L_clsᵐ", "seg": "with L_seg", "reg": "with L_reg"}
CENTERING = {f"M, {label}": (f"{row}_centered", row, "M") for row, label in LABELS.items()}
SEGMENTATION = {
    "L_seg, M": ("seg", "aux", "M"),
    "L_reg, M": ("reg", "seg", "M"),
    "L_reg, Seg.": ("reg", "seg", "Seg."),
}
SEGMENTED = {f"Seg., {LABELS[row]}": (f"{row}_centered", row, "Seg.") for row in ("seg", "reg")}
PARADOX = {
    "γ = −1 with L_seg": ("seg_centered", "seg"),
    "γ = −1 with L_reg": ("reg_centered", "reg"),
    "L_reg": ("reg", "seg"),
}
LITTLE = 1.0  # points of mIoU
_subset = partial(
    Claim, "Centered Self-Attention", command="make table NAME=wsss_ablation", scale=SMALL
)
_on = "VOC subset, DeiT-Ti, 800 iterations"
CLAIMS = [
    _subset(
        "centered_table4",
        "Table 4",
        "Centering raises the CAM's mIoU under every combination of losses (with L_cls alone from "
        "28.1 to 56.1 %).",
        f"{_on}: γ = −1 against 0.",
        partial(differences, pairs=CENTERING),
    ),
    _subset(
        "centered_aux",
        "Table 4",
        "The auxiliary loss does not help M without centering and helps it slightly with it.",
        f"{_on} (no help: less than {LITTLE:g} point).",
        auxiliary,
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
        "L_seg raises Mᵐ, yet centering and L_reg, which raise M, lower it (a paradox, the paper "
        "says).",
        f"{_on}: M and Mᵐ.",
        paradox,
    ),
    _subset(
        "centered_uniform",
        "3.3",
        "Patch tokens become overly uniform after several blocks; early layers keep them apart.",
        f"{_on}, γ = 0, from ImageNet weights.",
        uniform,
        command="make fig2",
    ),
    Claim(
        OWN,
        "centered_gamma_voc",
        "on Centered Self-Attention, 3.2, which expects the same of other offsets than −1",
        "γ = −0.5 raises the mIoU.",
        f"{_on}: γ = −0.5 against 0.",
        offsets,
        command="make table NAME=wsss_gamma",
        scale=SMALL,
    ),
    _subset(
        "centered_tokens",
        "Abstract, 3.2",
        "Centering keeps tokens apart in a ViT.",
        "Mean cosine and effective rank of the tokens after training, without centering and with "
        f"it: {_on}, from weights trained without it; small ViTs of 6 to 24 blocks on digits, from "
        "scratch.",
        tokens,
        command="make table NAME=wsss_gamma",
    ),
]
