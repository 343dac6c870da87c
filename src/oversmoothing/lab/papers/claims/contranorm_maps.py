"""ContraNorm's claims about attention maps and singular values (Guo et al., ICLR 2023, Fig. 2)."""

from collections.abc import Sequence
from functools import partial

from oversmoothing.lab.papers.claims.claim import SMALL, Claim, Finding, partly
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.store.identity import short_name

ALIKE, APART = 0.8, 0.5  # similarity of attention maps from here, of features up to there
BERT, DEIT = "small BERT, 12 layers", "DeiT-Ti, pretrained"
Layers = dict[str, list[float]]


def pretrained(evidence: Evidence) -> Layers:
    """Returns token and attention measures of the pretrained DeiT-Ti without an aggregator."""
    runs = evidence.runs("cls_pretrained")
    plain = [run for run in runs if short_name(run["config"]["aggregator"]) == "none"]
    return next(iter(plain[0]["seeds"].values()))["layers_before"]


def trained(evidence: Evidence, network: str) -> tuple[Layers, str]:
    """Returns measures of a network by layer, as means over seeds, and the number of seeds."""
    lines = evidence.csv("figures/contranorm_layers.csv", "make figure NAME=layers")
    found: Layers = {}
    own = [line for line in lines if line["row"] == network]
    for line in own:
        found.setdefault(line["metric"], []).append(float(line["mean"]))
    return found, own[0]["seeds"]


def alike(maps: Sequence[float], cosines: Sequence[float], n: str) -> Finding:
    """Whether attention maps are alike, and features are not, in the last four layers."""
    last = list(zip(maps, cosines))[-4:]
    low, high = zip(*[(min(of), max(of)) for of in zip(*last)])
    text = f"last four layers: attention maps {low[0]:.2f} to {high[0]:.2f}, features "
    text += f"{low[1]:.2f} to {high[1]:.2f}"
    return Finding(partly(a >= ALIKE and b < APART for a, b in last), text, n)


def vit(evidence: Evidence) -> Finding:
    """Claim: attention maps of a ViT are alike where its features are not."""
    layers = pretrained(evidence)
    return alike(layers["attention_similarity"], layers["cosine"], "64 images")


def bert(evidence: Evidence) -> Finding:
    """Claim: attention maps of BERT are alike where its features are not."""
    layers, seeds = trained(evidence, BERT)
    maps = layers["attention_similarity"]
    found = alike(maps, layers["cosine"], f"{seeds} seeds, 64 sentences")
    text = f"{found.measured}; the maps of the first layer {maps[0]:.2f} already"
    return Finding(found.verdict, text, found.n)


def singular(evidence: Evidence) -> Finding:
    """Claim: most singular values of BERT's last layer are small."""
    printed = evidence.published("contranorm_singular")
    counts = {
        row: [value for (_, key, _), value in printed.items() if key == row]
        for row in ("bert", "contranorm")
    }
    drawn, with_norm = (100 * bins[0] / sum(bins) for bins in counts.values())
    (small, seeds), (large, _) = trained(evidence, BERT), trained(evidence, DEIT)
    measured = [
        f"{name} {100 * layers['near_zero'][-1]:.0f} % "
        f"(effective rank {layers['effective_rank'][-1]:.1f})"
        for name, layers in ((BERT, small), (DEIT, large))
    ]
    text = (
        f"{drawn:.0f} % lie in bin 1 as drawn, with ContraNorm {with_norm:.0f} %; measured below "
    )
    text += f"a tenth of the largest: {', '.join(measured)}"
    verdict = partly([drawn > 50, small["near_zero"][-1] > 0.5])
    return Finding(verdict, text, f"one text as drawn; {seeds} seeds of the small BERT")


_claim = partial(Claim, "ContraNorm")
CLAIMS = [
    _claim(
        "contranorm_fig2_vit",
        "Figure 2a, b",
        "In a ViT the attention maps are alike (about 0.8 and more) where the features are not "
        "(mostly below 0.5).",
        "Pretrained DeiT-Ti, mean cosine of the rows of a map and of the patch tokens "
        f"(maps from {ALIKE:g} on count as alike).",
        vit,
        command="make table NAME=cls_pretrained",
    ),
    _claim(
        "contranorm_fig2_bert",
        "Figure 2a, b",
        "In BERT, attention maps are alike where the features are not.",
        "The same in a BERT of 12 layers, trained on SST-2 from scratch at 1e-4: BERT's pretrained "
        "weights were not at hand (`python -m oversmoothing diagnose hf:bert-base-uncased` "
        "measures them).",
        bert,
        command="make figure NAME=layers",
        scale=SMALL,
    ),
    _claim(
        "contranorm_fig2c",
        "Figure 2c (the source does not name the figure; most likely this one)",
        "Near-zero singular values dominate the last layer of BERT.",
        "The histogram in the authors' repository, 128 tokens of RTE (bin 1 of 10: below 11), and "
        "the small BERT on SST-2; more than half counts as dominating. DeiT-Ti for comparison.",
        singular,
        command="make figure NAME=layers",
        scale=SMALL,
    ),
]
