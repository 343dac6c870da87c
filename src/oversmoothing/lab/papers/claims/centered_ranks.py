"""Claims of Centered Self-Attention Layers (Ali et al., 4.1) about Figure 1, from its panels."""

import csv
import gzip
from functools import partial

import torch

from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.backbones.transformer import RandomTransformer
from oversmoothing.lab.papers.claims.claim import (
    OWN,
    Claim,
    Finding,
    at_least_one,
    share,
    span,
    tendency,
)
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.metrics.smoothness import rank

FIG1 = "make figure NAME=fig1"
COMMANDS = {
    "fig1": FIG1,
    "fig1_fan_in": "python scripts/figure.py fig1 --folder results/fig1_fan_in -- "
    "backbone.weights=normal backbone.weight_std=fan_in seeds=[0,1,2]",
    "fig1_seeds": "python scripts/figure.py fig1 --folder results/fig1_seeds -- "
    "backbone.weights=uniform,normal seeds=[0,1,2]",
}
HALF = 50  # of the 100 tokens
BLOCKS = {"pre_ln": "Pre-LN", "post_ln": "Post-LN", "resi_dual": "ResiDual"}
GAMMAS = [-1.5, -1.25, -1.0, -0.75, -0.5, 0.0, 0.5]
Panel = tuple[str, str, str]  # block, weights, seed


def failures(evidence: Evidence, folder: str) -> dict[Panel, tuple[int, int]]:
    """Counts for each panel the γ ≤ −1 with final rank 1, and the γ > −1 with a higher rank."""
    return {
        panel: (
            sum(gamma <= -1 and rank <= 1 for gamma, rank in by_gamma.items()),
            sum(gamma > -1 and rank > 1 for gamma, rank in by_gamma.items()),
        )
        for panel, by_gamma in ranks(evidence, folder).items()
    }


def ranks(evidence: Evidence, folder: str = "fig1") -> dict[Panel, dict[float, int]]:
    """Returns the rank after the last layer by panel and γ."""
    found: dict[Panel, dict[float, int]] = {}
    path = evidence.path(f"{folder}/fig1_rank.csv.gz", COMMANDS[folder])
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in csv.DictReader(file):  # by depth, so the last line stays
            by_gamma = found.setdefault((line["block"], line["weights"], line["seed"]), {})
            by_gamma[float(line["gamma"])] = int(line["rank"])
    return found


def exclusively(evidence: Evidence, kinds: tuple[str, ...] = (), folder: str = "fig1") -> Finding:
    """Claim: the rank falls to 1 for every γ > −1 and for no γ ≤ −1.

    A rank above 1 at γ > −1 does not decide the claim, since it may fall later.
    """
    panels = failures(evidence, folder)
    panels = {p: n for p, n in panels.items() if not kinds or p[1].startswith(kinds)}
    fell = {panel: fell for panel, (fell, _) in panels.items() if fell}
    stayed = {p: stayed for p, (_, stayed) in panels.items() if stayed and p not in fell}
    cases = [False if p in fell else None if p in stayed else True for p in panels]
    text = f"true in {cases.count(True)} of {len(cases)} panels"
    if fell:
        text += f"; refuted in {len(fell)}, with rank 1 at γ ≤ −1: {_told(fell)}"
    if stayed:
        text += f"; undecided in {len(stayed)}, still above 1 at γ > −1: {_told(stayed)}"
    seeds = len({seed for *_, seed in panels})
    many = "one seed" if seeds == 1 else f"{seeds} seeds"
    verdict = tendency(cases, all_of_them=True)
    return Finding(verdict, text, f"{many}, 61 values of γ per panel, 2,000 layers")


def _told(counts: dict[Panel, int]) -> str:
    """Lists the panels with the range of their counts over the seeds."""
    by_panel: dict[str, list[int]] = {}
    for (block, weights, _), count in counts.items():
        by_panel.setdefault(f"{block} {weights}", []).append(count)
    ranges = {panel: sorted({min(each), max(each)}) for panel, each in by_panel.items()}
    return ", ".join(f"{p} ({' to '.join(map(str, r))} γ)" for p, r in ranges.items())


def corrected(evidence: Evidence) -> Finding:
    """Claim: the rank falls to 1 at γ = 0; at γ = −1 half of it and more is left."""
    panels = ranks(evidence)
    lost = [by_gamma[0.0] <= 1 or None for by_gamma in panels.values()]
    kept = [by_gamma[-1.0] > 1 for by_gamma in panels.values()]
    full = [by_gamma[-1.0] >= 50 for by_gamma in panels.values()]
    text = (
        f"γ = 0: rank 1 in {share(lost, 'panels')}; γ = −1: rank above 1 in {share(kept)}, of 50 "
    )
    text += f"and more in {share(full)}"
    return Finding(tendency([*lost, *full]), text, "one seed per panel, 2,000 layers")


def others(evidence: Evidence) -> Finding:
    """Claim: another γ than −1 keeps at least the same rank."""
    panels, cases, texts = ranks(evidence), [], []
    for (block, weights, _), by_gamma in panels.items():
        rivals = [gamma for gamma in by_gamma if gamma != -1 and by_gamma[gamma] >= by_gamma[-1.0]]
        cases.append(bool(rivals))
        texts.append(f"{block} {weights}: rank {by_gamma[-1.0]} at −1, {len(rivals)} γ")
    text = f"another γ has at least the rank of −1 in {share(cases, 'panels')}: {'; '.join(texts)}"
    return Finding(at_least_one(cases), text, "61 values of γ, 2,000 layers")


def effective_ranks(evidence: Evidence, folder: str) -> dict[Panel, dict[float, float]]:
    """Returns the effective rank after the last layer by panel, at γ = −1 and 0."""
    path = evidence.path(f"{folder}/fig1_effective_rank.csv.gz", COMMANDS[folder])
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {  # by depth, so the last line stays
            (line["block"], line["weights"], line["seed"]): {
                gamma: float(line[f"gamma={gamma}"]) for gamma in (-1, 0)
            }
            for line in csv.DictReader(file)
        }


def effective(evidence: Evidence) -> Finding:
    """Claim: at γ = −1 half of the full effective rank and more is left."""
    panels = {panel: both[-1] for panel, both in effective_ranks(evidence, "fig1").items()}
    cases = [value >= HALF for value in panels.values()]
    each = ", ".join(f"{block} {weights} {x:.1f}" for (block, weights, _), x in panels.items())
    text = f"of {HALF} and more in {share(cases, 'panels')}: {each}"
    return Finding(tendency(cases), text, "one seed per panel, 2,000 layers")


def fan_in(evidence: Evidence) -> Finding:
    """Claim: without centering, half of the full effective rank and more is left."""
    panels, cases, texts = effective_ranks(evidence, "fig1_fan_in"), [], []
    for block in ("Pre-LN", "ResiDual"):
        own = [both for (name, *_), both in panels.items() if name == block]
        plain, centered = ([both[gamma] for both in own] for gamma in (0, -1))
        cases += [value >= HALF for value in plain]
        texts.append(f"{block} {span(plain, '.1f')} (γ = −1: {span(centered, '.1f')})")
    text = f"γ = 0: {', '.join(texts)}, of 100"
    return Finding(tendency(cases), text, "3 seeds, 2,000 layers")


def two_ranks(evidence: Evidence) -> Finding:
    """Claim: X_i and the output have the same rank after every layer."""
    texts, cases = [], []
    for block, label in BLOCKS.items():
        equal = []
        for weights in ("uniform", "normal"):
            gamma = torch.tensor(GAMMAS, dtype=torch.float64).view(-1, 1, 1)
            network = RandomTransformer(
                [partial(Centered, gamma=gamma)], [0, 1, 2], block=block, weights=weights,
                depth=60, num_tokens=30, dim=30, copies=len(GAMMAS),
            )  # fmt: skip
            for output in network.outputs():
                equal += (rank(output) == rank(network.state[0])).flatten().tolist()
        cases.append(all(equal))
        texts.append(f"{label} {100 * sum(equal) / len(equal):.0f} %")
    text = f"both ranks are equal in: {', '.join(texts)} of the cases"
    return Finding(tendency(cases), text, "3 seeds, 7 γ, 60 layers, 2 kinds of weights")


_claim = partial(Claim, "Centered Self-Attention", command=FIG1)
CLAIMS = [
    _claim(
        "centered_fig1",
        "Figure 1, its caption",
        "The rank approaches 1 with depth for every γ > −1, and for no γ ≤ −1.",
        "All nine panels, one seed.",
        exclusively,
    ),
    _claim(
        "centered_fig1_both",
        "4.1",
        "For identity and uniform weights, the rank falls to 1 for every γ > −1 and no γ ≤ −1.",
        "These six of the nine panels.",
        partial(exclusively, kinds=("Identity", "Uniform")),
    ),
    Claim(
        OWN,
        "centered_fig1_fan_in",
        "on Figure 1 of Centered Self-Attention, third row",
        "With normal weights of variance 1/d, the rank falls to 1 for every γ > −1 and no γ ≤ −1.",
        "The three panels, three seeds.",
        partial(exclusively, folder="fig1_fan_in"),
        command=COMMANDS["fig1_fan_in"],
    ),
    Claim(
        OWN,
        "centered_fig1_seeds",
        "on Figure 1 of Centered Self-Attention",
        "For other draws of the weights, the rank falls to 1 for every γ > −1 and no γ ≤ −1.",
        "The six panels of uniform and normal weights, three seeds.",
        partial(exclusively, folder="fig1_seeds"),
        command=COMMANDS["fig1_seeds"],
    ),
    _claim(
        "centered_blocks",
        "Introduction, 4.1",
        "All three blocks suffer from oversmoothing, and the correction largely resolves it.",
        "Rank after the last layer at γ = 0 and −1 in the nine panels.",
        corrected,
    ),
    Claim(
        OWN,
        "centered_effective",
        "on Figure 1 of Centered Self-Attention",
        "γ = −1 keeps half of the full effective rank and more.",
        "Effective rank after the last layer in the nine panels.",
        effective,
        command=FIG1,
    ),
    Claim(
        OWN,
        "centered_effective_fan_in",
        "on Figure 1 of Centered Self-Attention, third row",
        "With normal weights of variance 1/d, Pre-LN and ResiDual keep their effective rank "
        "without centering.",
        "Effective rank after the last layer (kept: half of the full one and more), three seeds.",
        fan_in,
        command=COMMANDS["fig1_fan_in"],
    ),
    _claim(
        "centered_other_gamma",
        "3.2",
        "Other offsets than −1 may keep the rank as well.",
        "Figure 1, panel by panel: the γ with at least the rank of γ = −1.",
        others,
    ),
    Claim(
        OWN,
        "centered_two_ranks",
        "on Centered Self-Attention, 4.1 against the caption of Figure 1",
        "The rank of X_i after layer i (text) and of the output (caption) are the same.",
        "Both ranks in small transformers, by block. ResiDual's X_i is that of Post-LN.",
        two_ranks,
        command="",
        cheap=False,
    ),
]
