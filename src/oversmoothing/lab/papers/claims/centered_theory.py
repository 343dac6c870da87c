"""Claims of Centered Self-Attention Layers (Ali et al., 3.1, 3.2) about random attention maps."""

from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from oversmoothing.lab.papers.claims.claim import Claim, Finding, above_rounding, every, span
from oversmoothing.lab.papers.claims.evidence import Evidence

DRAWS, N, D = 20, 50, 50
GAMMAS = (-1.5, -1.0, -0.5, 0.5)


def normal(n: int, d: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


def attention(x: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
    """Computes softmax(X W_Q (X W_K)ᵀ/√d). Shapes: x (..., n, d) -> (..., n, n)."""
    return ((x @ w_q) @ (x @ w_k).mT / x.shape[-1] ** 0.5).softmax(dim=-1)


def maps() -> Iterator[Tensor]:
    """Draws attention maps of random tokens and weights."""
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        x, w_q, w_k = (normal(N, D, generator) for _ in range(3))
        yield attention(x, w_q / D**0.5, w_k / D**0.5)


def largest(evidence: Evidence) -> Finding:
    """Claim: the largest singular value of an attention map is 1, the others are smaller."""
    values = [torch.linalg.svdvals(A) for A in maps()]
    first, second = ([float(sigma[i]) for sigma in values] for i in (0, 1))
    eigenvalues = [float(torch.linalg.eigvals(A).abs().max()) for A in maps()]
    text = f"σ₁ {span(first, '.2f')}, σ₂ up to {max(second):.2f}; the largest "
    text += f"eigenvalue is {span(eigenvalues, '.3f')}"
    cases = [abs(a - 1) < 1e-9 and b < 1 for a, b in zip(first, second)]
    return Finding(every(cases), text, f"{DRAWS} maps of {N} × {N}")


def interval(evidence: Evidence) -> Finding:
    """Claim: the eigenvalues change with γ; in fact 11ᵀ/n moves only that of the vector 1."""
    moved, radii = [], {gamma: [] for gamma in GAMMAS}
    for A, gamma in product(maps(), GAMMAS):
        others = _without(torch.linalg.eigvals(A), 1)
        offset = torch.linalg.eigvals(A + gamma / N)
        moved.append(float((_without(offset, 1 + gamma) - others).abs().max()))
        radii[gamma].append(float(offset.abs().max()))
    texts = [f"{gamma:g}: {span(r, '.2f')}" for gamma, r in radii.items()]
    text = "1 + γ takes the place of the eigenvalue 1, and the others move by "
    text += f"{above_rounding(max(moved))}; largest modulus (1 before), by γ: {'; '.join(texts)}"
    cases = [radius > 1 for gamma in GAMMAS if gamma < 0 for radius in radii[gamma]]
    return Finding(every(cases), text, f"{DRAWS} maps of {N} × {N}, {len(GAMMAS)} values of γ")


def _without(eigenvalues: Tensor, known: float) -> Tensor:
    """Returns the moduli of all eigenvalues except the one nearest to a known one, ascending."""
    rest = eigenvalues[(eigenvalues - known).abs().argsort()][1:]
    return rest.abs().sort().values


def inside_softmax(evidence: Evidence) -> Finding:
    """Claim: γ 11ᵀ/n has the same effect inside the softmax as outside."""
    moved, apart = [], []
    for seed, A in enumerate(maps()):
        v = normal(N, D, torch.Generator().manual_seed(seed))
        for gamma in GAMMAS:
            inside = (A.log() + gamma / N).softmax(dim=-1) @ v
            outside = A @ v + gamma * v.mean(dim=0)
            moved.append(float((inside - A @ v).abs().max()))
            apart.append(float((inside - outside).abs().max()))
    text = f"γ inside moves the output by {above_rounding(max(moved))}, and differs from γ outside "
    text += f"by {min(apart):.2f} to {max(apart):.2f}"
    return Finding(every(d < 1e-9 for d in apart), text, f"{DRAWS} maps, {len(GAMMAS)} values of γ")


_small = partial(Claim, "Centered Self-Attention", cheap=False)
CLAIMS = [
    _small(
        "centered_singular",
        "Introduction, 3.1",
        "The largest singular value of an attention map is 1, the others lie in (0, 1).",
        "Softmax maps of random tokens, with weights of variance 1/d. It is the largest eigenvalue "
        "that is 1.",
        largest,
    ),
    _small(
        "centered_interval",
        "3.2",
        "Rows that sum to 1 + γ put the eigenvalues of the map in a larger interval.",
        "The same maps; judged for γ below 0, which center. Only the eigenvalue of the constant "
        "vector changes: it grows with γ above 0, and then tokens become more alike.",
        interval,
    ),
    _small(
        "centered_inside",
        "3.2, the equation of S_γ",
        "γ 11ᵀ/n may be added to the map or inside its softmax.",
        "Both outputs on random maps and values.",
        inside_softmax,
    ),
]
