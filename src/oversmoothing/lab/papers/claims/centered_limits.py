"""Propositions 1 and 2 of Centered Self-Attention Layers (Ali et al., 3.1): limits of attention."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from oversmoothing.lab.papers.claims.centered_theory import D, N, attention, normal
from oversmoothing.lab.papers.claims.claim import (
    OWN,
    Claim,
    Finding,
    Verdict,
    above_rounding,
    every,
    share,
    span,
)
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.metrics.smoothness import rank, singular_values

LAYERS, WEIGHT_DRAWS = 200, 40
ROUNDING = 1e-12
WEIGHTS: dict[str, Callable[[torch.Generator], Tensor]] = {
    "uniform": lambda g: torch.rand(D, D, generator=g, dtype=torch.float64),
    "N(0, 1/d)": lambda g: normal(D, D, g) / D**0.5,
    "N(0, 1)": lambda g: normal(D, D, g),
}


def layers(x: Tensor, draw: Callable[[], tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, bool]]:
    """Applies attention LAYERS times, with weights of each layer from ``draw``.

    Returns:
        The tokens after each layer, and whether the layer satisfies the bound that proves both
        propositions: with the overlap of the rows o = Σⱼ minᵢ Sᵢⱼ > 0, the range of every channel
        over the tokens is multiplied by at most 1 − o.
    """
    for _ in range(LAYERS):
        A = attention(x, *draw())
        shrinks = 1 - A.amin(dim=-2).sum(dim=-1)
        before, x = x.amax(dim=-2) - x.amin(dim=-2), A @ x
        after = x.amax(dim=-2) - x.amin(dim=-2)
        bound = shrinks.unsqueeze(-1) * before + ROUNDING * x.abs().amax()
        yield x, bool((after <= bound).all())


def _ratio(x: Tensor) -> float:
    sigma = singular_values(x, exact=True)
    return float(sigma[1] / sigma[0])


def _converges(low: bool, kept: Sequence[bool]) -> bool | None:
    """Returns True at rank 1, False if a layer violates the bound, else None (undecided)."""
    return False if not all(kept) else low or None


def _proved(cases: Sequence[bool | None]) -> Verdict:
    """Returns the verdict; our proof decides all open cases unless its bound is violated."""
    return every(case for case in cases if case is not None)


def proposition1(evidence: Evidence) -> Finding:
    """Claim: attention with equal weights in all layers converges to rank 1 for any X."""
    texts, cases, bounds = [], [], []
    for name, weights in WEIGHTS.items():
        ranks = []
        for seed in range(5):
            generator = torch.Generator().manual_seed(seed)
            x, fixed = normal(N, D, generator), (weights(generator), weights(generator))
            outputs, kept = zip(*layers(x, lambda fixed=fixed: fixed))
            bounds += kept
            ranks.append(int(rank(outputs[-1])))
            cases.append(_converges(ranks[-1] <= 1, kept))
        texts.append(f"{name}: rank {span(ranks)}")
    text = f"{share(bounds, 'layers')} shrink the range of the tokens as our proof says; "
    text += f"rank 1 after {LAYERS} layers in {share(cases, 'draws')}; {'; '.join(texts)}"
    return Finding(_proved(cases), text, "5 draws each")


@cache
def limits(
    weights: Callable[[torch.Generator], Tensor],
) -> tuple[Tensor, Tensor, Sequence[bool]]:
    """Returns outputs for one random input and many draws of the weights, and after another layer.

    The last value says for each layer whether it satisfies the bound of ``layers``.
    """
    x = normal(N, D, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)

    def fresh() -> tuple[Tensor, Tensor]:
        pair = [torch.stack([weights(generator) for _ in range(WEIGHT_DRAWS)]) for _ in range(2)]
        return pair[0], pair[1]

    outputs, kept = zip(*layers(x.expand(WEIGHT_DRAWS, N, D), fresh))
    return outputs[-1], attention(outputs[-1], *fresh()) @ outputs[-1], kept


def proposition2(evidence: Evidence) -> Finding:
    """Claim: with fresh weights in every layer the mean of the limit has rank 1 for any X."""
    texts, cases, bounds = [], [], []
    for name, weights in WEIGHTS.items():
        last, _, kept = limits(weights)
        bounds += kept
        mean = last.mean(dim=0)
        cases.append(_converges(int(rank(mean)) <= 1, kept))
        texts.append(f"{name}: rank {int(rank(mean))}, σ₂/σ₁ {above_rounding(_ratio(mean))}")
    text = f"{share(bounds, 'layers')} shrink the range of the tokens as our proof says; "
    text += f"mean output after {LAYERS} layers: {'; '.join(texts)}"
    return Finding(_proved(cases), text, f"{WEIGHT_DRAWS} draws each")


def assumption(evidence: Evidence) -> Finding:
    """Claim: over draws of the weights, the limit and one more layer are uncorrelated."""
    texts, cases = [], []
    for name, weights in WEIGHTS.items():
        last, following, _ = limits(weights)
        a, b = (tokens.mean(dim=1) - tokens.mean(dim=(0, 1)) for tokens in (last, following))
        correlation = float((a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-300))
        spread = float(last.mean(dim=1).std(dim=0).mean() / last.abs().mean())
        cases.append(abs(correlation) < 0.1 or spread < 1e-6)
        texts.append(f"{name}: correlation {correlation:.3f}, spread {spread:.0e} of the output")
    return Finding(every(cases), "; ".join(texts), f"{WEIGHT_DRAWS} draws each")


def identity_input(evidence: Evidence, proposition: int) -> Finding:
    """Claim: Proposition 1 or 2 for X = I, from the recorded ranks."""
    path = evidence.path("propositions/propositions.md", "make figure NAME=propositions")
    lines = [line.strip("| ").split(" | ") for line in path.read_text("utf-8").splitlines()]
    plain = [line for line in lines if line[0] == str(proposition) and line[2] == "0"]
    holds = [None if "does not hold" in line[4] else True for line in plain]
    text = "; ".join(f"{line[1]}: {line[4].split(':')[0]}" for line in plain)
    text = f"rank 1 for {share(holds, 'kinds of weights')}: {text}"
    return Finding(_proved(holds), text, "2 or 5 seeds")


SLOW = "A higher rank after so many layers decides nothing: saturated attention converges slowly."
TRUE = (
    "True, but the printed proof treats the map as constant. A valid proof: every new token is a "
    "mean of tokens with positive weights, so tokens stay in the convex hull of X. Their range "
    "shrinks in every layer by a factor that is at most a number below 1, which depends on X and "
    "on the norms of the layer's weights"
)
FIXED = f"{TRUE}; with equal weights it is the same number in all layers."
FRESH = (
    f"{TRUE}. With fresh weights these numbers are independent and equally distributed, so their "
    "product goes to 0 almost surely, and the mean of the limit has equal rows."
)
_recorded = partial(Claim, "Centered Self-Attention", command="make figure NAME=propositions")
_small = partial(Claim, "Centered Self-Attention", cheap=False)
CLAIMS = [
    _recorded(
        "centered_prop1_identity",
        "Proposition 1",
        "With the same weights in all layers and W_V = I, attention converges to rank ≤ 1; "
        "for X = I.",
        f"Rank after 200 layers at γ = 0. {SLOW}",
        partial(identity_input, proposition=1),
    ),
    _small(
        "centered_prop1",
        "Proposition 1",
        "With the same weights in all layers, attention converges to rank ≤ 1 for any X.",
        f"Normal X of 50 × 50, float64. {FIXED} {SLOW}",
        proposition1,
    ),
    _recorded(
        "centered_prop2_identity",
        "Proposition 2",
        "With fresh random weights in every layer the mean of the limit has rank ≤ 1; for X = I.",
        f"Rank of the mean after 100 layers at γ = 0. {SLOW}",
        partial(identity_input, proposition=2),
    ),
    _small(
        "centered_prop2",
        "Proposition 2",
        "With fresh weights in every layer the mean of the limit has rank ≤ 1 for any X.",
        f"Normal X of 50 × 50, float64. {FRESH} {SLOW}",
        proposition2,
    ),
    Claim(
        OWN,
        "centered_prop2_assumption",
        "on Centered Self-Attention, the assumption of Proposition 2",
        "The limit is independent of the output of one more layer.",
        "Correlation of both over draws of the weights (they are independent if it is below 0.1 or "
        "the limit is the same for all draws).",
        assumption,
        cheap=False,
    ),
]
