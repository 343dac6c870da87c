"""Claims of External Attention (Guo et al., 2021), from an author's note: training."""

from functools import partial

from oversmoothing.lab.papers.claims.claim import (
    SMALL,
    Claim,
    Finding,
    directions,
    judged,
    little,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.report.verdict import compare

LITTLE = 1.0  # points
NORMS = {"softmax": "softmax over the slots", "none": "none", "tokens": "softmax over the tokens"}


def segmentation(evidence: Evidence) -> Finding:
    """Claim: the mIoU is higher with external attention than without a unit."""
    cells = evidence.measured("seg_subset")
    found = compare(cells["", "external", "SS"], cells["", "fcn", "SS"])
    return Finding(directions([found]), f"mIoU against no unit: {found.text}", f"{found.n} seeds")


def norms(evidence: Evidence) -> Finding:
    """Claim: the double norm is more accurate than each softmax alone, and than no norm."""
    cells = evidence.measured("external_norm")
    double = cells["", "double", "accuracy"]
    found = {label: compare(double, cells["", row, "accuracy"]) for row, label in NORMS.items()}
    texts = [f"against {label}: {one.text}" for label, one in found.items()]
    higher = share(judged([*found.values()]), "comparisons")
    text = f"double norm higher in {higher}: {'; '.join(texts)}"
    return Finding(directions([*found.values()]), text, f"{double.n} seeds")


def norms_of_self_attention(evidence: Evidence) -> Finding:
    """Claim: the double norm makes self-attention more accurate than softmax does."""
    cells = evidence.measured("attention_parts")
    plain, double = (cells["", row, "accuracy"] for row in ("self", "self_double"))
    found = compare(double, plain)
    return Finding(directions([found]), f"against the softmax: {found.text}", f"{double.n} seeds")


def batch_norm(evidence: Evidence) -> Finding:
    """Claim: BatchNorm makes EAMLP-7 more accurate than LayerNorm does."""
    cells = evidence.measured("eamlp_norms")
    batch, layer = (cells["", row, "accuracy"] for row in ("batch", "layer"))
    found = compare(batch, layer)
    return Finding(directions([found]), f"against LayerNorm: {found.text}", f"{batch.n} seeds")


def heads(evidence: Evidence) -> Finding:
    """Claim: several heads are better than one."""
    cells = evidence.measured("attention_parts")
    found = {
        kind: compare(cells["", kind, "accuracy"], cells["", f"{kind}_single", "accuracy"])
        for kind in ("self", "external")
    }
    text = "; ".join(f"{kind}: {one.text}" for kind, one in found.items())
    n, higher = found["self"].n, share(judged([*found.values()]), "comparisons")
    text = f"four heads higher than one in {higher}: {text}"
    return Finding(directions([*found.values()]), text, f"{n} seeds")


def level(evidence: Evidence) -> Finding:
    """Claim: external attention with heads is as accurate as self-attention, within 1 point."""
    cells = evidence.measured("attention_parts")
    gap = compare(cells["", "external", "accuracy"], cells["", "self", "accuracy"])
    text = f"external against self-attention, four heads each: {gap.text}"
    return Finding(tendency([little(gap, LITTLE)]), text, f"{gap.n} seeds")


BIG = "needs ImageNet and GPUs; `make table NAME=external_imagenet ALL=1` runs it"
_claim = partial(Claim, "External Attention")
_big = partial(_claim, command="make table NAME=external_imagenet ALL=1", missing=BIG)
CLAIMS = [
    _claim(
        "external_norm",
        "Normalization",
        "It depends much on the double norm.",
        "Small ViT on digits, `aggregator.norm`: against a softmax over the slots, no norm, and "
        "the softmax over the tokens, which is the first half of the double norm. Without it no "
        "token sees another: the class token sees no image.",
        norms,
        command="make table NAME=external_norm",
        scale=SMALL,
    ),
    _claim(
        "external_norm_self",
        "Normalization",
        "The double norm improves self-attention, T2T-ViT by 0.1 to 0.3 points.",
        "Small ViT on digits, `aggregator=self_attention`.",
        norms_of_self_attention,
        command="make table NAME=attention_parts",
        scale=SMALL,
    ),
    _claim(
        "external_segmentation",
        "Segmentation",
        "External attention is effective in segmentation.",
        "VOC subset, MobileNetV2, 300 iterations, single scale.",
        segmentation,
        command="make table NAME=seg_subset",
        scale=SMALL,
    ),
    _claim(
        "external_voc",
        "Segmentation",
        "EANet on VOC, ADE20K (45.33) and Cityscapes (81.7 mIoU).",
        "Training at full size.",
        missing="needs the data sets, ResNet-101 weights and GPUs",
        command="make table NAME=external_segmentation ALL=1",
    ),
    _claim(
        "external_heads",
        "Multi-head",
        "One head is worse than several: self-attention falls from 71.7 to 67.4 % with one, "
        "external attention to 63.2 %.",
        "Small ViT on digits, 6 blocks: four heads against one.",
        heads,
        command="make table NAME=attention_parts",
        scale=SMALL,
    ),
    _claim(
        "external_level",
        "Multi-head",
        "With heads, external attention is as accurate as self-attention (both 71.7 %; "
        "EAMLP's at 384 px, by the README).",
        f"Small ViT on digits, 6 blocks, four heads each (as accurate: within {LITTLE:g} point).",
        level,
        command="make table NAME=attention_parts",
        scale=SMALL,
    ),
    _big(
        "external_eamlp",
        "EAMLP's table",
        "EAMLP-14 and 19 reach 78.9 and 79.4 % (second-hand).",
        "ImageNet.",
    ),
    _big(
        "external_batchnorm",
        "Remarks, 1",
        "BatchNorm in place of LayerNorm gives EAMLP-7 1.1 points more; larger models diverge.",
        "ImageNet with `backbone.norm=batch`.",
    ),
    _claim(
        "external_batchnorm_digits",
        "Remarks, 1",
        "BatchNorm in place of LayerNorm makes EAMLP-7 more accurate, measured.",
        "Digits at 64 px, `backbone.norm=batch`.",
        batch_norm,
        command="make table NAME=eamlp_norms",
        scale=SMALL,
    ),
    _claim(
        "external_detection",
        "COCO",
        "External attention improves detection and instance segmentation.",
        "COCO.",
        missing="needs COCO and GPUs; detection is not a task here; no values are at hand",
        command="make table NAME=external_detection",
    ),
    _claim(
        "external_generation",
        "Tiny ImageNet",
        "It improves the generation of images.",
        "Tiny ImageNet.",
        missing="generation is not a task here; no values are at hand",
        command="make table NAME=external_generation",
    ),
    _claim(
        "external_points",
        "Point clouds",
        "It improves classification and segmentation of point clouds.",
        "Point clouds.",
        missing="point clouds are not data here; no values are at hand",
        command="make table NAME=external_points",
    ),
    _claim(
        "external_fig5",
        "Figure 5",
        "The figure shows the maps of the 24 heads of EAMLP-14's last layer.",
        "Attention maps of a trained EAMLP-14.",
        missing="needs EAMLP-14's weights, which are not published",
    ),
]
