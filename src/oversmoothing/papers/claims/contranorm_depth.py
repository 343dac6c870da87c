"""ContraNorm's claims about tokens by depth (Guo et al., ICLR 2023, Fig. 2 and 3)."""

from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from oversmoothing.papers.claims.claim import (
    Claim,
    Finding,
    above,
    directions,
    every,
    higher_in,
    partly,
    share,
    tendency,
)
from oversmoothing.papers.claims.evidence import Evidence
from oversmoothing.report.verdict import Measured, compare
from oversmoothing.store.identity import identity, short_name

ALIKE, APART = 0.8, 0.5  # similarity of attention maps from here, of features up to there
TABLES = {"text_rates": "BERT", "text_depth_tokens": "BERT", "cls_depth_tokens": "ViT on digits"}
Layers = dict[str, list[float]]
Seeds = dict[int, Layers]


def networks(evidence: Evidence) -> dict[tuple[str, int, float], dict[str, Seeds]]:
    """Measurements after training, by network, layers and rate, then by aggregator and seed."""
    found: dict[tuple[str, int, float], dict[str, Seeds]] = {}
    for table, name in TABLES.items():
        for run in evidence.runs(table):
            config = identity(run["config"], frozen=True)
            of = found.setdefault((name, _depth(run), float(config["trainer"]["lr"])), {})
            seeds = {int(seed): result["layers_after"] for seed, result in run["seeds"].items()}
            of.setdefault(short_name(config["aggregator"]), seeds)
    return dict(sorted(found.items()))


def _depth(run: dict[str, Any]) -> int:
    return len(next(iter(run["seeds"].values()))["layers_after"]["cosine"])


def beside(evidence: Evidence) -> Iterator[tuple[str, Seeds, Seeds]]:
    """Name of a network, its measurements with ContraNorm and without."""
    for (name, depth, rate), of in networks(evidence).items():
        if {"contranorm", "none"} <= of.keys():
            yield f"{name}, {depth} layers at {rate:g}", of["contranorm"], of["none"]


def after_last(seeds: Seeds, metric: str = "effective_rank") -> Measured:
    """A measure after the last layer."""
    values = tuple(layers[metric][-1] for layers in seeds.values())
    return Measured(values, "", 0.0, tuple(seeds))


def pretrained(evidence: Evidence) -> Layers:
    """Tokens and attention of the pretrained DeiT-Ti without an aggregator."""
    runs = evidence.runs("cls_pretrained")
    plain = [run for run in runs if short_name(run["config"]["aggregator"]) == "none"]
    return next(iter(plain[0]["seeds"].values()))["layers_before"]


def attention(evidence: Evidence) -> Finding:
    of = pretrained(evidence)
    last = list(zip(of["attention_similarity"], of["cosine"]))[-4:]
    maps, cosines = zip(*last)
    text = f"blocks 9 to 12: attention maps {min(maps):.2f} to {max(maps):.2f}, features "
    text += f"{min(cosines):.2f} to {max(cosines):.2f}"
    cases = [similar >= ALIKE and cosine < APART for similar, cosine in last]
    return Finding(partly(cases), text, "64 images")


def singular(evidence: Evidence) -> Finding:
    printed = evidence.published("contranorm_singular")
    counts = {
        row: [value for (_, key, _), value in printed.items() if key == row]
        for row in ("bert", "contranorm")
    }
    low = {row: of[0] / sum(of) for row, of in counts.items()}
    text = (
        f"{100 * low['bert']:.0f} % lie in bin 1, with ContraNorm {100 * low['contranorm']:.0f} %"
    )
    return Finding(every([low["bert"] > 0.5]), text, "one text, as drawn")


def falling(evidence: Evidence) -> Finding:
    found = {"DeiT-Ti": pretrained(evidence)["effective_rank"]}
    for (name, depth, rate), of in networks(evidence).items():
        if name == "BERT" and depth >= 12 and "none" in of:
            ranks = (layers["effective_rank"] for layers in of["none"].values())
            found[f"small BERT, {depth} layers at {rate:g}"] = [*map(fmean, zip(*ranks))]
    cases, texts = [], []
    for label, values in found.items():
        rho = spearmanr(range(len(values)), values).statistic
        cases.append(bool(rho < -0.9))
        texts.append(
            f"{label}: {values[0]:.1f} → {max(values):.1f} → {values[-1]:.1f} (ρ {rho:.2f})"
        )
    text = f"first, largest, last and Spearman's ρ with depth: {'; '.join(texts)}"
    return Finding(partly(cases), text, f"{len(cases)} networks")


def collapse(evidence: Evidence) -> Finding:
    found = list(beside(evidence))
    cases, texts = [], []
    for label, ours, base in found:
        ends = after_last(ours), after_last(base)
        higher = higher_in(compare(*ends), len(found))
        falls = [of["effective_rank"][-1] <= of["effective_rank"][0] / 2 for of in ours.values()]
        cases.append(False if len(falls) > 1 and all(falls) else higher)
        first = fmean(of["effective_rank"][0] for of in ours.values())
        means = f"{first:.1f} → {ends[0].mean:.1f}, without {ends[1].mean:.1f}"
        texts.append(f"{label}: {means} (n = {ends[0].n})")
    text = (
        f"effective rank after the last layer higher in {share(cases, 'networks')}; first → last "
    )
    text += f"layer: {'; '.join(texts)}"
    return Finding(tendency(cases), text, "a single seed decides nothing")


def accuracy(evidence: Evidence) -> Finding:
    cells, texts, cases = evidence.measured("text_rates"), [], []
    shallow = evidence.measured("text_depth")["", "none", "L=2"].mean
    for rate in ("5e-4", "1e-4"):
        base, ours = (cells["accuracy", key, f"L=24, {rate}"] for key in ("none", "contranorm"))
        fell = base.mean < shallow - 5 < ours.mean
        cases.append(fell and above(ours, base, 2) if min(base.n, ours.n) > 1 else None)
        texts.append(f"at {rate} {base.mean:.1f} % without, {ours.mean:.1f} % with ContraNorm")
    text = f"24 layers: {'; '.join(texts)} (2 layers at 5e-4: {shallow:.1f} %)"
    return Finding(tendency(cases), text, f"{ours.n} seed{'s' * (ours.n > 1)} each")


def deep_bert(evidence: Evidence) -> Finding:
    found = [
        of
        for of in beside(evidence)
        if of[0].startswith("BERT") and not of[0].startswith(("BERT, 2 ", "BERT, 6 "))
    ]
    ranks = {label: (after_last(ours), after_last(base)) for label, ours, base in found}
    spreads = {
        label: (after_last(ours, "variance"), after_last(base, "variance"))
        for label, ours, base in found
        if all("variance" in layers for seeds in (ours, base) for layers in seeds.values())
    }
    text = f"effective rank with and without: {_against(ranks)}; "
    text += f"variance: {_against(spreads)}" if spreads else "the variance was not recorded"
    pairs = [*ranks.values(), *spreads.values()]
    n = min(a.n for a, _ in pairs)
    verdict = directions([compare(*pair) for pair in pairs])
    return Finding(verdict, text, f"{n} seed{'s' * (n > 1)} each")


def _against(found: dict[str, tuple[Measured, Measured]]) -> str:
    return "; ".join(
        f"{label}: {a.mean:.1f} against {b.mean:.1f}" for label, (a, b) in found.items()
    )


_claim = partial(Claim, "ContraNorm")
CLAIMS = [
    _claim(
        "contranorm_fig2_vit",
        "Figure 2a, b",
        "In a ViT the attention maps are alike (about 0.8 and more) where the features are not "
        "(mostly below 0.5).",
        "Pretrained DeiT-Ti, mean cosine of the rows of a map and of the patch tokens "
        f"(maps from {ALIKE:g} on count as alike).",
        attention,
        command="make table NAME=cls_pretrained",
    ),
    _claim(
        "contranorm_fig2_bert",
        "Figure 2a, b",
        "In BERT, attention maps are alike where the features are not.",
        "Both similarities in a pretrained BERT-base.",
        missing="BERT's pretrained weights were not at hand; "
        "`python -m oversmoothing diagnose hf:bert-base-uncased` measures it",
    ),
    _claim(
        "contranorm_fig2c",
        "Figure 2c (the source does not name the figure; most likely this one)",
        "Near-zero singular values dominate the last layer of BERT.",
        "The histogram in the authors' repository, 128 tokens of RTE (bin 1 of 10: below 11; more "
        "than half counts as dominating).",
        singular,
        command="make table NAME=contranorm_singular",
    ),
    _claim(
        "contranorm_fig2d",
        "Figure 2d",
        "The effective rank falls with depth.",
        "After every layer of trained networks (ρ below −0.9 counts as falling).",
        falling,
        command="make table NAME=text_rates",
    ),
    _claim(
        "contranorm_collapse",
        "Title, abstract, 4.1",
        "ContraNorm prevents dimensional collapse: the effective rank stays high with depth.",
        "BERTs of 2 to 24 layers on SST-2, ViTs of 6 to 24 blocks on digits, from scratch: higher "
        "than without ContraNorm, and not below half of that after the first layer in all seeds.",
        collapse,
        command="make table NAME=text_rates",
    ),
    _claim(
        "contranorm_fig3a",
        "Figure 3a",
        "BERT's accuracy falls with depth, and with ContraNorm it does not.",
        "Small BERTs on SST-2, from scratch (a fall: more than 5 points below 2 layers).",
        accuracy,
        command="make table NAME=text_rates",
    ),
    _claim(
        "contranorm_fig3bc",
        "Figure 3b, c",
        "In deep BERT the variance and the effective rank are higher with ContraNorm.",
        "Small BERTs of 12 and 24 layers on SST-2, after the last layer.",
        deep_bert,
        command="make table NAME=text_rates",
    ),
]
