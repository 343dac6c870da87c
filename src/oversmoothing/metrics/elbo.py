"""The evidence lower bound (ELBO) of EM attention (HEMNet: Song, Kim, Shim, AAAI 2021, Eq. 3)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def elbo(x: Tensor, gamma: Tensor, mu: Tensor, variance: float) -> Tensor:
    """Σ_n Σ_k γ_nk (ln N(x_n | μ_k, σ²I) − ln γ_nk), without mixing coefficients; float64.

    If γ is the posterior, this is the log-likelihood ln p(X) of Eq. 2.

    Args:
        variance: σ².

    Shapes: x (..., N, C), gamma (..., N, K), mu (..., K, C) -> (...).
    """
    x, gamma, mu = x.double(), gamma.double(), mu.double()
    C = x.shape[-1]
    squares = x.square().sum(dim=-1)[..., :, None] + mu.square().sum(dim=-1)[..., None, :]
    distances = squares - 2 * x @ mu.mT
    log_density = -distances / (2 * variance) - C / 2 * math.log(2 * math.pi * variance)
    entropy = torch.special.entr(gamma)  # 0 at γ = 0
    return (gamma * log_density + entropy).sum(dim=(-2, -1))


def elbo_by_step(
    x: Tensor,
    before: Sequence[Tensor],
    gamma: Sequence[Tensor],
    mu: Sequence[Tensor],
    variance: float,
) -> Tensor:
    """ELBO after every E-step and after every N-step of T iterations.

    Args:
        before: T bases before the E-steps.
        gamma: T responsibilities, computed from ``before``.
        mu: T bases after the N-steps.
        variance: σ².

    Shapes: x (..., N, C), each before and mu (..., K, C), each gamma (..., N, K) -> (..., T, 2).
    """
    steps = [
        torch.stack([elbo(x, g, old, variance), elbo(x, g, new, variance)], dim=-1)
        for old, g, new in zip(before, gamma, mu, strict=True)
    ]
    return torch.stack(steps, dim=-2)
