"""ContraNorm's claims about tokens by depth (Guo et al., ICLR 2023, Fig. 2 and 3)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from scipy.stats import spearmanr

from oversmoothing.papers.claims.claim import Claim, Finding, every, partly, share
from oversmoothing.papers.claims.evidence import Evidence
from oversmoothing.store.identity import identity, short_name

ALIKE, APART = 0.7, 0.5  # similarity of attention maps from here, of features up to there
TABLES = {"text_rates": "BERT", "text_depth_tokens": "BERT", "cls_depth_tokens": "ViT on digits"}
Layers = dict[str, list[float]]


def networks(evidence: Evidence) -> dict[tuple[str, int, float], dict[str, list[Layers]]]:
    """Measurements after training, by network, layers and rate, then by aggregator: one a seed."""
    found: dict[tuple[str, int, float], dict[str, list[Layers]]] = {}
    for table, name in TABLES.items():
        for run in evidence.runs(table):
            config = identity(run["config"], frozen=True)
            of = found.setdefault((name, _depth(run), float(config["trainer"]["lr"])), {})
            seeds = [seed["layers_after"] for seed in run["seeds"].values()]
            of.setdefault(short_name(config["aggregator"]), seeds)
    return dict(sorted(found.items()))


def _depth(run: dict[str, Any]) -> int:
    return len(next(iter(run["seeds"].values()))["layers_after"]["cosine"])


def beside(evidence: Evidence) -> Iterator[tuple[str, Layers, Layers]]:
    """Name of a network, its measurements with ContraNorm and without, of the first seed."""
    for (name, depth, rate), of in networks(evidence).items():
        if {"contranorm", "none"} <= of.keys():
            yield f"{name}, {depth} layers at {rate:g}", of["contranorm"][0], of["none"][0]


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
            label = f"small BERT, {depth} layers at {rate:g}"
            found[label] = of["none"][0]["effective_rank"]
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
    higher, kept, texts = [], [], []
    for label, ours, base in beside(evidence):
        first, last = ours["effective_rank"][0], ours["effective_rank"][-1]
        higher.append(last > base["effective_rank"][-1])
        kept.append(last > first / 2)
        if not (higher[-1] and kept[-1]):
            texts.append(
                f"{label}: {first:.1f} → {last:.1f}, without {base['effective_rank'][-1]:.1f}"
            )
    text = f"effective rank after the last layer above that without ContraNorm in {share(higher)} "
    text += f"networks, above half of that after the first layer in {share(kept)}; "
    text += f"exceptions: {'; '.join(texts) or 'none'}"
    return Finding(partly([*higher, *kept]), text, "one seed each")


def accuracy(evidence: Evidence) -> Finding:
    cells, texts, cases = evidence.measured("text_rates"), [], []
    shallow = evidence.measured("text_depth")["", "none", "L=2"].mean
    for rate in ("5e-4", "1e-4"):
        of = [cells["accuracy", key, f"L=24, {rate}"].mean for key in ("none", "contranorm")]
        cases += [of[0] < shallow - 5 < of[1]]
        texts.append(f"at {rate} {of[0]:.1f} % without, {of[1]:.1f} % with ContraNorm")
    text = f"24 layers: {'; '.join(texts)} (2 layers at 5e-4: {shallow:.1f} %)"
    return Finding(partly(cases), text, "one seed each")


def deep_bert(evidence: Evidence) -> Finding:
    found = [
        (label, ours["effective_rank"][-1], base["effective_rank"][-1])
        for label, ours, base in beside(evidence)
        if label.startswith("BERT") and not label.startswith(("BERT, 2 ", "BERT, 6 "))
    ]
    text = "; ".join(f"{label}: {ours:.1f} against {base:.1f}" for label, ours, base in found)
    text = f"effective rank with and without: {text}; the variance was not recorded"
    return Finding(partly(ours > base for _, ours, base in found), text, "one seed each")


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
        "Figure 2c",
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
        "BERTs of 2 to 24 layers on SST-2, ViTs of 6 to 24 blocks on digits, from scratch.",
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
