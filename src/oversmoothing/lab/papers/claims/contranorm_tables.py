"""ContraNorm's claims about cost, accuracy and its parts (Guo et al., ICLR 2023, Table 1 to 4)."""

from functools import partial

from oversmoothing.lab.papers.claims.claim import (
    SMALL,
    Claim,
    Finding,
    above,
    below,
    directions,
    every,
    higher_in,
    little,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.report.verdict import compare

LITTLE = 1.0  # points
OTHER_POSITIONS = (
    "input",
    "context",
    "projection",
    "attention_norm",
    "ffn",
    "ffn_sum",
    "output",
)


def parameters(evidence: Evidence) -> Finding:
    """Claim: ContraNorm adds less than 2 % parameters to a transformer or graph network."""
    cells = evidence.json("matrix")["cells"]
    shares = {
        f"{key} in {network}": counts[key]["parameters"] / counts["none"]["parameters"] - 1
        for network, counts in cells.items()
        for key in ("contranorm", "contranorm_vit", "contranorm_bert", "contranorm_albert")
        if "ResNet" not in network
        and "Mobile" not in network
        and "parameters" in counts.get(key, {})
    }
    most = max(shares, key=lambda name: shares[name])
    text = f"at most {100 * shares[most]:.2g} % more parameters ({most})"
    return Finding(every(value < 0.02 for value in shares.values()), text, f"{len(shares)} cases")


def terms(evidence: Evidence) -> Finding:
    """Claim: one term of the gradient gives the accuracy of both, within 1 point."""
    cells = evidence.measured("contranorm_ablation")
    rows = ("none", "l2", "identity", "layernorm")
    shifts = {
        row: compare(cells["", row, "both terms"], cells["", row, "stop-gradient"]) for row in rows
    }
    text = f"both terms against one: {'; '.join(f'{r} {s.text}' for r, s in shifts.items())}"
    n = min(cells["", row, "both terms"].n for row in rows)
    found = tendency(little(shift, LITTLE) for shift in shifts.values())
    return Finding(found, text, f"{n} seeds per cell")


def norms(evidence: Evidence) -> Finding:
    """Claim: the accuracies with L2 norm and with LayerNorm are within 1 point."""
    cells = evidence.measured("contranorm_ablation")
    gap = compare(*(cells["", row, "stop-gradient"] for row in ("l2", "layernorm")))
    found = tendency([little(gap, LITTLE)])
    return Finding(found, f"L2 against LayerNorm: {gap.text}", f"{gap.n} seeds")


def stop_gradient(evidence: Evidence) -> Finding:
    """Claim: with LayerNorm, stop-gradient is more accurate than both terms."""
    cells = evidence.measured("contranorm_ablation")
    gap = compare(*(cells["", "layernorm", column] for column in ("stop-gradient", "both terms")))
    return Finding(
        directions([gap]), f"stop-gradient against both terms: {gap.text}", f"{gap.n} seeds"
    )


def uniformity_loss(evidence: Evidence) -> Finding:
    """Compares weights of the uniformity loss with none: accuracy, effective rank, cosine."""
    cells, weights = evidence.measured("contranorm_loss"), ("0.01", "0.1", "1")
    gains = {
        column: {row: compare(cells["", row, column], cells["", "none", column]) for row in weights}
        for column in ("accuracy", "effective rank", "mean cosine")
    }
    ranks, cosines = (
        [higher_in(gain, 2 * len(weights)) for gain in gains[column].values()]
        for column in ("effective rank", "mean cosine")
    )
    cases = [below(gain, LITTLE) for gain in gains["accuracy"].values()]
    cases += [*(None if up is None else not up for up in ranks), *cosines]
    texts = [
        f"{column}: {', '.join(f'{row}: {gain.text}' for row, gain in by_weight.items())}"
        for column, by_weight in gains.items()
    ]
    n = cells["", "none", "accuracy"].n
    text = f"helps little in {share(cases, 'cases')}: against no such loss, {'; '.join(texts)}"
    return Finding(tendency(cases), text, f"{n} seeds per weight")


def positions(evidence: Evidence) -> Finding:
    """Claim: after attention and residual is better than every other position."""
    cells = evidence.measured("contranorm_positions")
    best = cells["", "attention_sum", "accuracy"]
    others = {row: cells["", row, "accuracy"] for row in OTHER_POSITIONS}
    cases = [above(best, other, len(others)) for other in others.values()]
    means = ", ".join(f"{row} {cell.mean:.1f}" for row, cell in others.items())
    text = f"{best.mean:.1f} % there, above {share(cases, 'others')}: {means}"
    return Finding(tendency(cases, all_of_them=True), text, f"{best.n} seeds per position")


GPU = "needs all of {} and GPUs; `make table NAME={} ALL=1` runs it"
ABLATION = "make table NAME=contranorm_ablation"
_claim = partial(Claim, "ContraNorm")
CLAIMS = [
    _claim(
        "contranorm_parameters",
        "Abstract",
        "It has hardly any parameters of its own.",
        "Parameters of transformers and graph networks with and without it (below 2 % counts as "
        "hardly any). In a CNN it is part of a unit with convolutions of its own.",
        parameters,
        command="make figure NAME=matrix",
    ),
    _claim(
        "contranorm_glue",
        "Table 1",
        "It raises GLUE's average from 82.59 to 83.39 (introduction: 83.54) with BERT-base, from "
        "83.74 to 84.67 with ALBERT-base, and every task of it.",
        "Fine-tuning on all of GLUE.",
        missing=GPU.format("GLUE, pretrained weights", "contranorm_table1"),
        command="make table NAME=contranorm_table1 ALL=1",
    ),
    _claim(
        "contranorm_glue_test",
        "E.1",
        "BERT with ContraNorm is better on GLUE's test sets, too.",
        "Predictions sent to GLUE's server.",
        missing="needs pretrained weights, a GPU and GLUE's server; no values are at hand",
        command="make table NAME=contranorm_glue_test",
    ),
    _claim(
        "contranorm_imagenet",
        "Table 2",
        "It raises DeiT with 24 blocks from 77.69 to 78.67 % on ImageNet-1k and by nearly 5 points "
        "on ImageNet-100; it is better at every depth.",
        "Training by DeiT's recipe.",
        missing=GPU.format("ImageNet", "contranorm_table2"),
        command="make table NAME=contranorm_table2 ALL=1",
    ),
    _claim(
        "contranorm_terms",
        "3.3",
        "Both terms of the gradient act alike, so that one can be dropped.",
        "Small ViT on generated objects: accuracy with P and with P + Pᵀ (alike: within 1 point).",
        terms,
        command=ABLATION,
        scale=SMALL,
    ),
    _claim(
        "contranorm_norms",
        "Table 4",
        "L2 and LayerNorm are comparable.",
        "Small ViT on generated objects, with stop-gradient (comparable: within "
        f"{LITTLE:g} point).",
        norms,
        command=ABLATION,
        scale=SMALL,
    ),
    _claim(
        "contranorm_table4",
        "Table 4",
        "With LayerNorm, stop-gradient is better than both terms.",
        "Small ViT on generated objects.",
        stop_gradient,
        command=ABLATION,
        scale=SMALL,
    ),
    _claim(
        "contranorm_loss",
        "3.2, B.2",
        "The uniformity loss in the objective helps little against oversmoothing.",
        "Small ViT of 12 blocks on digits, `task.uniformity`: three weights, since the paper gives "
        f"none (little: accuracy up by less than {LITTLE:g} point, effective rank not higher, mean "
        "cosine not lower).",
        uniformity_loss,
        command="make table NAME=contranorm_loss",
        scale=SMALL,
    ),
    _claim(
        "contranorm_position",
        "B.3",
        "The best position is after attention and residual.",
        "Small BERT of 6 layers on SST-2, from scratch: the eight positions of the authors' code.",
        positions,
        command="make table NAME=contranorm_positions",
        scale=SMALL,
    ),
    _claim(
        "contranorm_ogbn",
        "Appendix, README",
        "ContraNorm-D raises RevGAT on ogbn-arxiv from 76.15 to 76.36 % (test).",
        "RevGAT with GIANT-XRT features and distillation.",
        missing="needs ogbn-arxiv, GIANT-XRT features and a GPU; RevGAT is not a backbone here",
        command="make table NAME=contranorm_ogbn",
    ),
    _claim(
        "contranorm_yolo",
        "A blog's copy of the paper",
        "In place of BatchNorm it improves YOLOv9.",
        "Detection with ContraNorm.",
        missing="no numbers and no recipe are given; detection is not a task here",
    ),
]
