"""ContraNorm's claims about tokens by depth (Guo et al., ICLR 2023, Fig. 2d and 3)."""

from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from oversmoothing.lab.papers.claims.claim import (
    SMALL,
    Claim,
    Finding,
    above,
    directions,
    judged,
    partly,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.contranorm_maps import pretrained
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.report.verdict import Measured, compare
from oversmoothing.lab.store.identity import short_name

TABLES = {"text_rates": "BERT", "text_depth_tokens": "BERT", "cls_depth_tokens": "ViT on digits"}
FALL = 5  # points of accuracy
Layers = dict[str, list[float]]
Seeds = dict[int, Layers]


def networks(evidence: Evidence) -> dict[tuple[str, int, float], dict[str, Seeds]]:
    """Returns measurements after training by network, layers and rate, then aggregator and seed."""
    found: dict[tuple[str, int, float], dict[str, Seeds]] = {}
    for table, name in TABLES.items():
        for run in evidence.runs(table):
            config = run["config"]
            network = name, _depth(run), float(config["trainer"]["lr"])
            seeds = {int(seed): result["layers_after"] for seed, result in run["seeds"].items()}
            by_aggregator = found.setdefault(network, {})
            by_aggregator.setdefault(short_name(config["aggregator"]), seeds)
    return dict(sorted(found.items()))


def _depth(run: dict[str, Any]) -> int:
    return len(next(iter(run["seeds"].values()))["layers_after"]["cosine"])


def beside(evidence: Evidence) -> Iterator[tuple[str, Seeds, Seeds]]:
    """Yields the name of a network, and its measurements with and without ContraNorm."""
    for (name, depth, rate), by_aggregator in networks(evidence).items():
        if {"contranorm", "none"} <= by_aggregator.keys():
            label = f"{name}, {depth} layers at {rate:g}"
            yield label, by_aggregator["contranorm"], by_aggregator["none"]


def after_last(seeds: Seeds, metric: str = "effective_rank") -> Measured:
    """Returns a measure after the last layer."""
    values = tuple(layers[metric][-1] for layers in seeds.values())
    return Measured(values, "", 0.0, tuple(seeds))


def _numbers(first: Measured, second: Measured) -> str:
    """``n = 3``, or ``n = 3 and 1`` if the two have different numbers of seeds."""
    return f"n = {first.n}" + f" and {second.n}" * (first.n != second.n)


def falling(evidence: Evidence) -> Finding:
    """Claim: the effective rank falls with depth, by Spearman's ρ."""
    found = {"DeiT-Ti": pretrained(evidence)["effective_rank"]}
    for (name, depth, rate), by_aggregator in networks(evidence).items():
        if name == "BERT" and depth >= 12 and "none" in by_aggregator:
            ranks = (layers["effective_rank"] for layers in by_aggregator["none"].values())
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
    """Claim: with ContraNorm the effective rank is higher and does not halve with depth."""
    found = list(beside(evidence))
    last = [(after_last(ours), after_last(base)) for _, ours, base in found]
    cases, texts = [], []
    for (label, ours, _), ends, higher in zip(
        found, last, judged([compare(*ends) for ends in last])
    ):
        ranks = [layers["effective_rank"] for layers in ours.values()]
        falls = [rank[-1] <= rank[0] / 2 for rank in ranks]
        cases.append(False if len(falls) > 1 and all(falls) else higher)
        first = fmean(rank[0] for rank in ranks)
        means = f"{first:.1f} → {ends[0].text}, without {ends[1].text}"
        texts.append(f"{label}: {means} ({_numbers(*ends)})")
    text = (
        f"effective rank after the last layer higher in {share(cases, 'networks')}; first → last "
    )
    text += f"layer: {'; '.join(texts)}"
    return Finding(tendency(cases), text, "a single seed decides nothing")


def accuracy(evidence: Evidence) -> Finding:
    """Claim: at 24 layers BERT loses accuracy without ContraNorm, and not with it."""
    cells, texts, cases = evidence.measured("text_rates"), [], []
    shallow = evidence.measured("text_depth")["", "none", "L=2"]
    level = Measured(tuple(value - FALL for value in shallow.values), "", 0.0, shallow.seeds)
    for rate in ("5e-4", "1e-4"):
        base, ours = (cells["accuracy", key, f"L=24, {rate}"] for key in ("none", "contranorm"))
        fell, kept = above(level, base, 4), above(ours, level, 4)
        cases.append(False if False in (fell, kept) else fell and kept)
        means = f"{ours.text} % with ContraNorm, {base.text} % without"
        texts.append(f"at {rate} {means} ({_numbers(ours, base)})")
    text = f"24 layers: {'; '.join(texts)}; 2 layers at 5e-4: {shallow.mean:.1f} % "
    text += f"(n = {shallow.n})"
    return Finding(tendency(cases), text, "n as given")


def deep_bert(evidence: Evidence) -> Finding:
    """Claim: ContraNorm raises the effective rank and variance of deep BERTs."""
    found = [
        network
        for network in beside(evidence)
        if network[0].startswith("BERT") and not network[0].startswith(("BERT, 2 ", "BERT, 6 "))
    ]
    ranks = {label: (after_last(ours), after_last(base)) for label, ours, base in found}
    spreads = {  # runs before the variance was added do not have it
        label: (after_last(ours, "token_variance"), after_last(base, "token_variance"))
        for label, *both in found
        for ours, base in [[_with_variance(seeds) for seeds in both]]
        if ours and base
    }
    text = f"effective rank with and without: {_against(ranks)}; "
    text += f"variance: {_against(spreads) or 'not recorded'}"
    verdict = directions([compare(*pair) for pair in (*ranks.values(), *spreads.values())])
    return Finding(verdict, text, "n as given")


def _with_variance(seeds: Seeds) -> Seeds:
    """Selects the seeds whose variance is recorded."""
    return {seed: layers for seed, layers in seeds.items() if "token_variance" in layers}


def _against(found: dict[str, tuple[Measured, Measured]]) -> str:
    """``BERT, 12 layers at 0.0001: 21.31 ± 0.20 against 20.00 ± 0.10 (n = 3); …``"""
    return "; ".join(
        f"{label}: {a.text} against {b.text} ({_numbers(a, b)})" for label, (a, b) in found.items()
    )


_claim = partial(Claim, "ContraNorm")
CLAIMS = [
    _claim(
        "contranorm_fig2d",
        "Figure 2d",
        "The effective rank falls with depth.",
        "After every layer of trained networks (ρ below −0.9 counts as falling).",
        falling,
        command="make table NAME=text_rates",
        scale=SMALL,
    ),
    _claim(
        "contranorm_collapse",
        "Title, abstract, 4.1",
        "ContraNorm prevents dimensional collapse: the effective rank stays high with depth.",
        "BERTs of 2 to 24 layers on SST-2, ViTs of 6 to 24 blocks on digits, from scratch: higher "
        "than without ContraNorm, and not below half of that after the first layer in all seeds.",
        collapse,
        command="make table NAME=text_rates",
        scale=SMALL,
    ),
    _claim(
        "contranorm_fig3a",
        "Figure 3a",
        "BERT's accuracy falls with depth, and with ContraNorm it does not.",
        f"Small BERTs on SST-2, from scratch (a fall: more than {FALL} points below 2 layers).",
        accuracy,
        command="make table NAME=text_rates",
        scale=SMALL,
    ),
    _claim(
        "contranorm_fig3bc",
        "Figure 3b, c",
        "In deep BERT the variance and the effective rank are higher with ContraNorm.",
        "Small BERTs of 12 and 24 layers on SST-2, after the last layer.",
        deep_bert,
        command="make table NAME=text_rates",
        scale=SMALL,
    ),
]
