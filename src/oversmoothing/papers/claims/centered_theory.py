"""Claims of Centered Self-Attention Layers (Ali et al., 3.1, 3.2) about random attention maps."""

import re
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from oversmoothing.metrics.smoothness import rank, singular_values
from oversmoothing.papers.claims.claim import Claim, Finding, every, partly, share
from oversmoothing.papers.claims.evidence import Evidence

DRAWS, N, D = 20, 50, 50
LAYERS, WEIGHT_DRAWS = 200, 40
SEEDS = "2 or 5 seeds"
WEIGHTS: dict[str, Callable[[torch.Generator], Tensor]] = {
    "uniform": lambda g: torch.rand(D, D, generator=g, dtype=torch.float64),
    "N(0, 1/d)": lambda g: _normal(D, D, g) / D**0.5,
    "N(0, 1)": lambda g: _normal(D, D, g),
}


def _normal(n: int, d: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


def attention(x: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
    """softmax(X W_Q (X W_K)ᵀ/√d). Shapes: x (..., n, d) -> (..., n, n)."""
    return ((x @ w_q) @ (x @ w_k).mT / x.shape[-1] ** 0.5).softmax(dim=-1)


def maps() -> Iterator[Tensor]:
    """Attention maps of random tokens and weights."""
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        x, w_q, w_k = (_normal(N, D, generator) for _ in range(3))
        yield attention(x, w_q / D**0.5, w_k / D**0.5)


def largest(evidence: Evidence) -> Finding:
    values = [torch.linalg.svdvals(of) for of in maps()]
    first, second = ([float(sigma[i]) for sigma in values] for i in (0, 1))
    eigenvalues = [float(torch.linalg.eigvals(of).abs().max()) for of in maps()]
    text = f"σ₁ {min(first):.2f} to {max(first):.2f}, σ₂ up to {max(second):.2f}; the largest "
    text += f"eigenvalue is {min(eigenvalues):.3f} to {max(eigenvalues):.3f}"
    cases = [abs(a - 1) < 1e-9 and b < 1 for a, b in zip(first, second)]
    return Finding(every(cases), text, f"{DRAWS} maps of {N} × {N}")


def inside_softmax(evidence: Evidence) -> Finding:
    moved, apart = [], []
    for seed, of in enumerate(maps()):
        v = _normal(N, D, torch.Generator().manual_seed(seed))
        for gamma in (-1.5, -1.0, -0.5, 0.5):
            inside = (of.log() + gamma / N).softmax(dim=-1) @ v
            outside = of @ v + gamma * v.mean(dim=0)
            moved.append(float((inside - of @ v).abs().max()))
            apart.append(float((inside - outside).abs().max()))
    text = f"γ inside moves the output by {max(moved):.0e} at most, and differs from γ outside by "
    text += f"{min(apart):.2f} to {max(apart):.2f}"
    return Finding(every(d < 1e-9 for d in apart), text, f"{DRAWS} maps, 4 values of γ")


def deep(x: Tensor, draw: Callable[[], tuple[Tensor, Tensor]] | tuple[Tensor, Tensor]) -> Tensor:
    """Applies attention LAYERS times, with fixed weights or fresh ones in every layer."""
    for _ in range(LAYERS):
        x = attention(x, *(draw if isinstance(draw, tuple) else draw())) @ x
    return x


def _ratio(x: Tensor) -> float:
    sigma = singular_values(x, exact=True)
    return float(sigma[1] / sigma[0])


def proposition1(evidence: Evidence) -> Finding:
    texts, cases = [], []
    for name, weights in WEIGHTS.items():
        ranks, ratios = [], []
        for seed in range(5):
            generator = torch.Generator().manual_seed(seed)
            x = deep(_normal(N, D, generator), (weights(generator), weights(generator)))
            ranks.append(int(rank(x)))
            ratios.append(_ratio(x))
        cases += [r <= 1 for r in ranks]
        texts.append(f"{name}: rank {min(ranks)} to {max(ranks)}, σ₂/σ₁ up to {max(ratios):.0e}")
    return Finding(partly(cases), f"after {LAYERS} layers {'; '.join(texts)}", "5 draws each")


def limits(weights: Callable[[torch.Generator], Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs of one random input under many draws of the weights, and after one more layer."""
    x = _normal(N, D, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)

    def fresh() -> tuple[Tensor, Tensor]:
        of = [torch.stack([weights(generator) for _ in range(WEIGHT_DRAWS)]) for _ in range(2)]
        return of[0], of[1]

    last = deep(x.expand(WEIGHT_DRAWS, N, D), fresh)
    return last, attention(last, *fresh()) @ last


def proposition2(evidence: Evidence) -> Finding:
    texts, cases = [], []
    for name, weights in WEIGHTS.items():
        mean = limits(weights)[0].mean(dim=0)
        cases.append(int(rank(mean)) <= 1)
        texts.append(f"{name}: rank {int(rank(mean))}, σ₂/σ₁ {_ratio(mean):.0e}")
    return Finding(partly(cases), f"mean output {'; '.join(texts)}", f"{WEIGHT_DRAWS} draws each")


def assumption(evidence: Evidence) -> Finding:
    texts, cases = [], []
    for name, weights in WEIGHTS.items():
        last, following = limits(weights)
        a, b = (of.mean(dim=1) - of.mean(dim=(0, 1)) for of in (last, following))
        correlation = float((a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-300))
        spread = float(last.mean(dim=1).std(dim=0).mean() / last.abs().mean())
        cases.append(abs(correlation) < 0.1 or spread < 1e-6)
        texts.append(f"{name}: correlation {correlation:.3f}, spread {spread:.0e} of the output")
    return Finding(every(cases), "; ".join(texts), f"{WEIGHT_DRAWS} draws each")


def identity_input(evidence: Evidence, proposition: int) -> Finding:
    path = evidence.path("propositions/propositions.md", "make figure NAME=propositions")
    lines = [line.strip("| ").split(" | ") for line in path.read_text("utf-8").splitlines()]
    plain = [line for line in lines if line[0] == str(proposition) and line[2] == "0"]
    holds = [not re.search("does not hold", line[4]) for line in plain]
    text = "; ".join(f"{line[1]}: {line[4].split(':')[0]}" for line in plain)
    return Finding(
        partly(holds), f"holds for {share(holds)} kinds of weights: {text}", "2 or 5 seeds"
    )


_recorded = partial(Claim, "Centered Self-Attention", command="make figure NAME=propositions")
_small = partial(Claim, "Centered Self-Attention", cheap=False)
CLAIMS = [
    _small(
        "centered_singular",
        "Introduction, 3.1",
        "The largest singular value of an attention map is 1, the others lie in (0, 1).",
        "Softmax maps of random tokens and weights. It is the largest eigenvalue that is 1.",
        largest,
    ),
    _small(
        "centered_inside",
        "3.2, the equation of S_γ",
        "γ 11ᵀ/n may be added to the map or inside its softmax.",
        "Both outputs on random maps and values.",
        inside_softmax,
    ),
    _recorded(
        "centered_prop1_identity",
        "Proposition 1",
        "With the same weights in all layers and W_V = I, attention converges to rank ≤ 1; "
        "for X = I.",
        "Rank after 200 layers at γ = 0.",
        partial(identity_input, proposition=1),
    ),
    _small(
        "centered_prop1",
        "Proposition 1",
        "With the same weights in all layers, attention converges to rank ≤ 1 for any X.",
        "Normal X of 50 × 50, float64; saturated attention may need more layers than these.",
        proposition1,
    ),
    _recorded(
        "centered_prop2_identity",
        "Proposition 2",
        "With fresh random weights in every layer the mean of the limit has rank ≤ 1; for X = I.",
        "Rank of the mean after 100 layers at γ = 0.",
        partial(identity_input, proposition=2),
    ),
    _small(
        "centered_prop2",
        "Proposition 2",
        "With fresh weights in every layer the mean of the limit has rank ≤ 1 for any X.",
        f"Normal X of 50 × 50, {LAYERS} layers, float64.",
        proposition2,
    ),
    _small(
        "centered_prop2_assumption",
        "Proposition 2, its assumption",
        "The limit is independent of the output of one more layer.",
        "Correlation of both over draws of the weights (they are independent if it is below 0.1 or "
        "the limit is the same for all draws).",
        assumption,
    ),
]
