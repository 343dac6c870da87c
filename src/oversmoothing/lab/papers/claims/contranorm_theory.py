"""ContraNorm's Propositions 1 and 2 (Guo et al., ICLR 2023, 3.3 and 3.4), on random features."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from oversmoothing.lab.papers.claims.claim import OWN, Claim, Finding, every, partly, share
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.metrics.smoothness import effective_rank, token_variance

DRAWS = 2000
ROUNDING = 1e-9
COUNTEREXAMPLE = (1.4, 0.8), 0.9  # singular values of H, s


def draws(number: int, seed: int = 0) -> Iterator[tuple[Tensor, float]]:
    """Random features H with 3 to 12 tokens and 2 to 8 channels of any scale, and a scale s."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        n, d = (int(torch.randint(*ends, (), generator=generator)) for ends in ((3, 13), (2, 9)))
        size, s = (float(torch.rand((), generator=generator)) for _ in range(2))
        H = torch.randn(n, d, generator=generator, dtype=torch.float64)
        yield 3 * size * H, 0.05 + 0.95 * s


def softmax_map(H: Tensor) -> Tensor:
    """Ā = softmax(HHᵀ)."""
    return (H @ H.mT).softmax(dim=-1)


def bounds(H: Tensor) -> float:
    """The smallest eigenvalue of P = (I − eeᵀ)(I − Ā) + its transpose, σ_min of Proposition 1."""
    n = len(H)
    eye = torch.eye(n, dtype=H.dtype)
    half = (eye - 1 / n) @ (eye - softmax_map(H))
    return float(torch.linalg.eigvalsh(half + half.mT)[0])


def variances(H: Tensor, s: float) -> tuple[float, float]:
    """The variance before and after (1 + s) H − s ĀH."""
    after = (1 + s) * H - s * softmax_map(H) @ H
    return float(token_variance(H)), float(token_variance(after))


def prop1(evidence: Evidence) -> Finding:
    """Claim: the variance is at least (1 + s·σ_min) times what it was."""
    cases, semidefinite = [], 0
    for H, s in draws(DRAWS):
        lowest, (before, after) = bounds(H), variances(H, s)
        cases.append(after >= (1 + s * lowest) * before - ROUNDING)
        semidefinite += lowest >= -ROUNDING
    text = f"bound kept in {share(cases, 'draws')}; P semi-definite in {semidefinite} of them"
    return Finding(every(cases), text, f"{DRAWS} draws of H and s")


def without_identity(evidence: Evidence) -> Finding:
    """Three measures of spread before and after H − sĀH; only one depends on the scale of H."""
    grew: dict[str, list[bool]] = {}
    for H, s in draws(DRAWS):
        after = H - s * softmax_map(H) @ H
        measures: dict[str, Callable[[Tensor], Tensor]] = {
            "the variance": token_variance,
            "the variance after a LayerNorm": lambda x: token_variance(layer_norm(x, x.shape[1:])),
            "the effective rank": effective_rank,
        }
        for name, measure in measures.items():
            grew.setdefault(name, []).append(bool(measure(after) >= measure(H)))
    text = "; ".join(f"{name} grew in {share(cases, 'draws')}" for name, cases in grew.items())
    mostly = (2 * sum(cases) > len(cases) for cases in grew.values())
    return Finding(partly(mostly), text, f"{DRAWS} draws")


def ranks(sigma: Tensor, s: float) -> tuple[float, float]:
    """Effective rank before and after (1 + s) H − s HHᵀH, from the singular values of H."""
    after = sigma * (1 + s - s * sigma.square())
    return tuple(float(effective_rank(torch.diag(values))) for values in (sigma, after))


def rank_cases(square: bool, step: float | None = None) -> list[bool]:
    """Whether the effective rank grew, for random H and s that meet the condition.

    Args:
        square: the condition of the proposition, else that of the text after it.
        step: s; None: drawn.
    """
    cases = []
    for H, drawn in draws(DRAWS):
        s = drawn if step is None else step
        sigma = torch.linalg.svdvals(H)
        largest = sigma[0].square() if square else sigma[0]
        if 1 + (1 - largest) * s > 0:
            before, after = ranks(sigma, s)
            cases.append(after > before)
    return cases


def prop2(evidence: Evidence, square: bool = True) -> Finding:
    """Claim: the update raises the effective rank wherever the condition is met."""
    (largest, smallest), s = COUNTEREXAMPLE
    before, after = ranks(torch.tensor([largest, smallest], dtype=torch.float64), s)
    cases = rank_cases(square)
    condition = 1 + (1 - largest ** (2 if square else 1)) * s
    text = (
        f"H = diag({largest:g}, {smallest:g}), s = {s:g}: condition {condition:.3f} > 0, effective "
        f"rank {before:.3f} → {after:.3f}; it grew in {share(cases, 'draws')} that meet the "
        "condition"
    )
    met = condition > 0
    return Finding(every([*cases, after > before or not met]), text, f"{len(cases)} draws")


def small_steps(evidence: Evidence) -> Finding:
    """Claim: the update raises the effective rank for small s."""
    cases = rank_cases(square=True, step=1e-4)
    text = f"with s = 0.0001 the effective rank grew in {share(cases, 'draws')}"
    return Finding(every(cases), text, f"{len(cases)} draws of H")


_claim = partial(Claim, "ContraNorm", cheap=False)
CLAIMS = [
    _claim(
        "contranorm_prop1",
        "Proposition 1",
        "With (1 + s)H − sĀH the variance is at least (1 + s·σ_min) times what it was; so it does "
        "not fall where P, the symmetric part of 2(I − eeᵀ)(I − Ā), is positive semi-definite.",
        "The bound on random H (3 to 12 tokens, 2 to 8 channels) and s from 0.05 to 1.",
        prop1,
    ),
    Claim(
        OWN,
        "contranorm_variance_eq7",
        "on ContraNorm, Eq. 7, 9",
        "H − sĀH, the form of ViT and ALBERT, spreads tokens too, as (1 + s)H − sĀH does.",
        "Three measures before and after, on the same draws (more than half of the draws counts).",
        without_identity,
        cheap=False,
    ),
    _claim(
        "contranorm_prop2",
        "Proposition 2",
        "(1 + s)H − sHHᵀH raises the effective rank for every s > 0 with 1 + (1 − σ_max²)s > 0.",
        "A counterexample, and random H and s that meet the condition.",
        prop2,
    ),
    _claim(
        "contranorm_prop2_text",
        "3.4, after Proposition 2",
        "Proposition 2 under the condition that the text repeats without the square: "
        "1 + (1 − σ_max)s > 0.",
        "As for Proposition 2.",
        partial(prop2, square=False),
    ),
    _claim(
        "contranorm_prop2_small",
        "3.4, after Proposition 2",
        "Near s = 0 the condition is met and the update raises the effective rank.",
        "The same draws with s = 0.0001.",
        small_steps,
    ),
]
