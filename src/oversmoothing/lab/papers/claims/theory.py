"""Propositions of Centered Self-Attention and of ContraNorm, on random maps and features.

Centered Self-Attention (Ali et al.), 3.1 and 3.2: A = softmax(X W_Q (X W_K)ᵀ/√d) and A + γ 11ᵀ/n.
ContraNorm (Guo et al., ICLR 2023), 3.3 and 3.4: (1 + s)H − sĀH with Ā = softmax(HHᵀ), and
(1 + s)H − sHHᵀH.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice, product

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.backbones.transformer import RandomTransformer
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.claims.rules import (
    Finding,
    Verdict,
    above_rounding,
    every,
    partly,
    share,
    span,
    tendency,
)
from oversmoothing.metrics.smoothness import (
    cosine,
    effective_rank,
    rank,
    singular_values,
    token_variance,
)

MAPS, N, D = 20, 50, 50
GAMMAS = (-1.5, -1.0, -0.5, 0.5)
LAYERS, WEIGHT_DRAWS = 200, 40
ROUNDING = 1e-12
WEIGHTS: dict[str, Callable[[torch.Generator], Tensor]] = {
    "uniform": lambda g: torch.rand(D, D, generator=g, dtype=torch.float64),
    "N(0, 1/d)": lambda g: normal(D, D, g) / D**0.5,
    "N(0, 1)": lambda g: normal(D, D, g),
}


def normal(n: int, d: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


def attention(x: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
    """Computes softmax(X W_Q (X W_K)ᵀ/√d). Shapes: x (..., n, d) -> (..., n, n)."""
    return ((x @ w_q) @ (x @ w_k).mT / x.shape[-1] ** 0.5).softmax(dim=-1)


def maps() -> Iterator[Tensor]:
    """Draws attention maps of random tokens and weights."""
    for seed in range(MAPS):
        generator = torch.Generator().manual_seed(seed)
        x, w_q, w_k = (normal(N, D, generator) for _ in range(3))
        yield attention(x, w_q / D**0.5, w_k / D**0.5)


def largest_singular_value() -> Finding:
    """Claim: it is 1, and the others are smaller."""
    values = [torch.linalg.svdvals(A) for A in maps()]
    first, second = ([float(sigma[i]) for sigma in values] for i in (0, 1))
    eigenvalues = [float(torch.linalg.eigvals(A).abs().max()) for A in maps()]
    text = f"σ₁ {span(first, '.2f')}, σ₂ up to {max(second):.2f}; the largest "
    text += f"eigenvalue is {span(eigenvalues, '.3f')}"
    cases = [abs(a - 1) < 1e-9 and b < 1 for a, b in zip(first, second)]
    return Finding(every(cases), text, f"{MAPS} maps of {N} × {N}")


def interval_of_eigenvalues() -> Finding:
    """Claim: the eigenvalues grow with γ; in fact 11ᵀ/n moves only that of the vector 1."""
    moved, radii = [], {gamma: [] for gamma in GAMMAS}
    for A, gamma in product(maps(), GAMMAS):
        others = _without(torch.linalg.eigvals(A), 1)
        offset = torch.linalg.eigvals(A + gamma / N)
        moved.append(float((_without(offset, 1 + gamma) - others).abs().max()))
        radii[gamma].append(float(offset.abs().max()))
    texts = [f"{gamma:g}: {span(r, '.2f')}" for gamma, r in radii.items()]
    text = "1 + γ takes the place of the eigenvalue 1, and the others move by "
    text += f"{above_rounding(max(moved))}; largest modulus (1 before), by γ: {'; '.join(texts)}"
    cases = [radius > 1 for of_gamma in radii.values() for radius in of_gamma]
    return Finding(partly(cases), text, f"{MAPS} maps of {N} × {N}, {len(GAMMAS)} values of γ")


def _without(eigenvalues: Tensor, known: float) -> Tensor:
    """Returns the moduli of all eigenvalues except the one nearest to a known one, ascending."""
    rest = eigenvalues[(eigenvalues - known).abs().argsort()][1:]
    return rest.abs().sort().values


def inside_softmax() -> Finding:
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
    return Finding(every(d < 1e-9 for d in apart), text, f"{MAPS} maps, {len(GAMMAS)} values of γ")


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


def converges(low: bool, kept: Sequence[bool]) -> bool | None:
    """Returns True at rank 1, False if a layer violates the bound, else None (undecided)."""
    return False if not all(kept) else low or None


def _proved(cases: Sequence[bool | None]) -> Verdict:
    """Returns the verdict; our proof decides all open cases unless its bound is violated."""
    return every(case for case in cases if case is not None)


def proposition1() -> Finding:
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
            cases.append(converges(ranks[-1] <= 1, kept))
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


def proposition2() -> Finding:
    """Claim: with fresh weights in every layer the mean of the limit has rank 1 for any X."""
    texts, cases, bounds = [], [], []
    for name, weights in WEIGHTS.items():
        last, _, kept = limits(weights)
        bounds += kept
        mean = last.mean(dim=0)
        sigma = singular_values(mean, exact=True)
        ratio = above_rounding(float(sigma[1] / sigma[0]))
        cases.append(converges(int(rank(mean)) <= 1, kept))
        texts.append(f"{name}: rank {int(rank(mean))}, σ₂/σ₁ {ratio}")
    text = f"{share(bounds, 'layers')} shrink the range of the tokens as our proof says; "
    text += f"mean output after {LAYERS} layers: {'; '.join(texts)}"
    return Finding(_proved(cases), text, f"{WEIGHT_DRAWS} draws each")


def independent_limit() -> Finding:
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
    path = evidence.path("propositions/propositions.md", "oversmoothing figure propositions")
    lines = [line.strip("| ").split(" | ") for line in path.read_text("utf-8").splitlines()]
    plain = [line for line in lines if line[0] == str(proposition) and line[2] == "0"]
    holds = [None if "does not hold" in line[4] else True for line in plain]
    texts = (f"{line[1]}: {line[4].split(':')[0]}" for line in plain)
    text = re.sub(r"[\d.]+e-1[4-9]", "below 1e-14", "; ".join(texts))  # rounding differs by CPU
    text = f"rank 1 for {share(holds, 'kinds of weights')}: {text}"
    return Finding(_proved(holds), text, "2 or 5 seeds")


def two_ranks() -> Finding:
    """Claim: X_i and the output of a transformer have the same rank after every layer."""
    gamma = torch.tensor([-1.5, -1.25, -1.0, -0.75, -0.5, 0.0, 0.5], dtype=torch.float64)
    centered = partial(Centered, gamma=gamma.view(-1, 1, 1))
    size = {"depth": 60, "num_tokens": 30, "dim": 30, "copies": len(gamma)}
    texts, cases = [], []
    for block, label in (("pre_ln", "Pre-LN"), ("post_ln", "Post-LN"), ("resi_dual", "ResiDual")):
        equal = []
        for weights in ("uniform", "normal"):
            network = RandomTransformer([centered], [0, 1, 2], block=block, weights=weights, **size)
            for output in network.outputs():
                equal += (rank(output) == rank(network.state[0])).flatten().tolist()
        cases.append(all(equal))
        texts.append(f"{label} {100 * sum(equal) / len(equal):.0f} %")
    text = f"both ranks are equal in: {', '.join(texts)} of the cases"
    return Finding(tendency(cases), text, "3 seeds, 7 γ, 60 layers, 2 kinds of weights")


# ContraNorm

DRAWS = 2000
SLACK = 1e-9
COUNTEREXAMPLE = (1.4, 0.8), 0.9  # singular values of H, s


def draws() -> Iterator[tuple[Tensor, float]]:
    """Draws features H with 3 to 12 tokens and 2 to 8 channels of any scale, and a scale s."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        n, d = (int(torch.randint(*ends, (), generator=generator)) for ends in ((3, 13), (2, 9)))
        size, s = (float(torch.rand((), generator=generator)) for _ in range(2))
        yield 3 * size * normal(n, d, generator), 0.05 + 0.95 * s


def softmax_map(H: Tensor) -> Tensor:
    """Ā = softmax(HHᵀ)."""
    return (H @ H.mT).softmax(dim=-1)


def lowest_eigenvalue(H: Tensor) -> float:
    """The smallest eigenvalue of P = (I − eeᵀ)(I − Ā) + its transpose, σ_min of Proposition 1."""
    n = len(H)
    eye = torch.eye(n, dtype=H.dtype)
    half = (eye - 1 / n) @ (eye - softmax_map(H))
    return float(torch.linalg.eigvalsh(half + half.mT)[0])


def variances(H: Tensor, s: float) -> tuple[float, float]:
    """The variance before and after (1 + s) H − s ĀH."""
    after = (1 + s) * H - s * softmax_map(H) @ H
    return float(token_variance(H)), float(token_variance(after))


def contranorm_proposition1() -> Finding:
    """Claim: the variance is at least (1 + s·σ_min) times what it was."""
    cases, semidefinite = [], 0
    for H, s in draws():
        lowest, (before, after) = lowest_eigenvalue(H), variances(H, s)
        cases.append(after >= (1 + s * lowest) * before - SLACK)
        semidefinite += lowest >= -SLACK
    text = f"bound kept in {share(cases, 'draws')}; P semi-definite in {semidefinite} of them"
    return Finding(every(cases), text, f"{DRAWS} draws of H and s")


def without_identity() -> Finding:
    """Three measures of spread before and after H − sĀH; only one depends on the scale of H."""
    measures: dict[str, Callable[[Tensor], Tensor]] = {
        "the variance": token_variance,
        "the variance after a LayerNorm": lambda x: token_variance(layer_norm(x, x.shape[1:])),
        "the effective rank": effective_rank,
    }
    grew: dict[str, list[bool]] = {name: [] for name in measures}
    for H, s in draws():
        after = H - s * softmax_map(H) @ H
        for name, measure in measures.items():
            grew[name].append(bool(measure(after) >= measure(H)))
    text = "; ".join(f"{name} grew in {share(cases, 'draws')}" for name, cases in grew.items())
    mostly = (2 * sum(cases) > len(cases) for cases in grew.values())
    return Finding(partly(mostly), text, f"{DRAWS} draws")


def ranks(sigma: Tensor, s: float) -> tuple[float, float]:
    """Effective rank before and after (1 + s) H − s HHᵀH, from the singular values of H."""
    after = sigma * (1 + s - s * sigma.square())
    return tuple(float(effective_rank(torch.diag(values))) for values in (sigma, after))


def rank_cases(step: float | None = None) -> list[bool]:
    """Returns whether the effective rank grew, for random H and s that meet the condition.

    Args:
        step: s; None: drawn.
    """
    cases = []
    for H, drawn in draws():
        s = drawn if step is None else step
        sigma = torch.linalg.svdvals(H)
        if 1 + (1 - sigma[0].square()) * s > 0:
            before, after = ranks(sigma, s)
            cases.append(after > before)
    return cases


def contranorm_proposition2() -> Finding:
    """Claim: the update raises the effective rank wherever the condition is met."""
    (largest, smallest), s = COUNTEREXAMPLE
    before, after = ranks(torch.tensor([largest, smallest], dtype=torch.float64), s)
    cases = rank_cases()
    condition = 1 + (1 - largest**2) * s
    text = (
        f"H = diag({largest:g}, {smallest:g}), s = {s:g}: condition {condition:.3f} > 0, effective "
        f"rank {before:.3f} → {after:.3f}; it grew in {share(cases, 'draws')} that meet the "
        "condition"
    )
    met = condition > 0
    return Finding(every([*cases, after > before or not met]), text, f"{len(cases)} draws")


def small_steps() -> Finding:
    """Claim: the update raises the effective rank for small s; equal singular values stay equal."""
    cases = rank_cases(step=1e-4)
    equal = [ranks(torch.full((number,), 0.7, dtype=torch.float64), 1e-4) for number in (1, 3)]
    grew = [after > before + ROUNDING for before, after in equal]
    text = f"with s = 0.0001 the effective rank grew in {share(cases, 'draws')}; it stays as it is "
    text += "for every s if H has rank 1, or equal singular values: "
    text += ", ".join(f"{before:.0f} → {after:.0f}" for before, after in equal)
    return Finding(partly([*cases, *grew]), text, f"{len(cases)} draws of H, 2 exact cases")


def corrected_proposition2() -> Finding:
    """Proposition 2 under 1 + (1 − 3 σ_max²) s ≥ 0: σ ↦ (1 + s)σ − sσ³ is then increasing on them,
    and concave, so ratios of singular values come closer to 1.
    """
    cases = []
    for H, s in draws():
        sigma = torch.linalg.svdvals(H)
        if 1 + (1 - 3 * sigma[0].square()) * s >= 0:
            before, after = ranks(sigma, s)
            cases.append(after >= before - ROUNDING)
    text = f"the effective rank did not fall in {share(cases, 'draws')} that meet the condition"
    return Finding(every(cases), text, f"{len(cases)} draws")


def gradient_of_uniformity() -> Finding:
    """Claim: the gradient of Σᵢ log Σⱼ exp(hᵢ·hⱼ/τ) is (D⁻¹A + AD⁻¹)H/τ, A = exp(HHᵀ/τ)."""
    errors = []
    for (H, _), tau in product(islice(draws(), MAPS), (0.5, 1.0, 2.0)):
        H = H.clone().requires_grad_()
        logits = H @ H.mT / tau
        (gradient,) = torch.autograd.grad(logits.logsumexp(dim=-1).sum(), H)
        shares = logits.softmax(dim=-1)  # D⁻¹A; A is symmetric, so AD⁻¹ is its transpose
        printed = ((shares + shares.mT) @ H / tau).detach()
        errors.append(float((gradient - printed).abs().max() / printed.abs().max()))
    text = f"relative difference {above_rounding(max(errors))}"
    return Finding(
        every(error < 1e-12 for error in errors), text, f"{len(errors)} draws of H and τ"
    )


def gradient_of_dimensions() -> Finding:
    """Claim: the gradient of tr((I − HHᵀ)²)/4 is (I − HHᵀ)H; by automatic differentiation."""
    cases, ratios = [], []
    for H, _ in islice(draws(), MAPS):
        H = H.clone().requires_grad_()
        rest = torch.eye(len(H), dtype=H.dtype) - H @ H.mT
        (gradient,) = torch.autograd.grad((rest @ rest).trace() / 4, H)
        printed = (rest @ H).detach()
        cases.append(bool(torch.allclose(gradient, printed)))
        ratios.append(float((gradient * printed).sum() / printed.square().sum()))
    text = f"the gradient is {span(ratios, '.4f')} times the printed one; equal in "
    text += f"{share(cases, 'draws')}, so ContraNorm's step descends"
    return Finding(every(cases), text, f"{MAPS} draws of H")


def dimensional_collapse() -> Finding:
    """Claim: features in few dimensions have a low mean cosine, and a low effective rank."""
    cosines, ranks, C = [], [], 64
    for k, seed in product((1, 2, 4, 8, 16, 32), range(5)):
        generator = torch.Generator().manual_seed(seed)
        x = normal(256, k, generator) @ normal(k, C, generator)
        cosines.append(cosine(x).item())
        ranks.append(effective_rank(x).item() / k)
    cases = [abs(own) < 0.05 and rank < 1.001 for own, rank in zip(cosines, ranks)]
    text = (
        f"256 random tokens of 64 channels in k = 1 to 32 dimensions: mean cosine "
        f"{span(cosines, '.2f')}, effective rank {span(ranks, '.2f')} of k"
    )
    return Finding(every(cases), text, "30 draws")
