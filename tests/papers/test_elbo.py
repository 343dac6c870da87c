"""Laws of the evidence lower bound, and which steps of EM attention raise it."""

import pytest
import torch
from tokens import random_tokens as draw
from torch import Tensor
from torch.distributions import MultivariateNormal

from oversmoothing.aggregators.em import EM
from oversmoothing.lab.papers.hemnet_elbo import elbo

N, C, K = 60, 5, 4
VARIANCE = 0.8
ROUNDING = 1e-9


def clusters(seed: int) -> Tensor:
    return draw(K, C, seed=seed).repeat_interleave(N // K, dim=0) + draw(N, C, seed=seed + 100)


def log_densities(x: Tensor, mu: Tensor) -> Tensor:
    """Shapes: x (N, C), mu (K, C) -> (N, K)."""
    covariance = VARIANCE * torch.eye(C, dtype=x.dtype)
    return torch.stack([MultivariateNormal(m, covariance).log_prob(x) for m in mu], dim=1)


def test_equals_its_definition() -> None:
    x, mu, gamma = draw(N, C, seed=0), draw(K, C, seed=1), draw(N, K, seed=2).softmax(dim=-1)
    expected = (gamma * (log_densities(x, mu) - gamma.log())).sum()
    assert elbo(x, gamma, mu, VARIANCE).item() == pytest.approx(expected.item(), rel=1e-12)


def test_at_the_posterior_it_is_the_log_likelihood_and_nowhere_above() -> None:
    x, mu = draw(N, C, seed=0), draw(K, C, seed=1)
    joint = log_densities(x, mu)
    likelihood = joint.logsumexp(dim=1).sum().item()
    at_posterior = elbo(x, joint.softmax(dim=1), mu, VARIANCE).item()
    assert at_posterior == pytest.approx(likelihood, rel=1e-12)
    for seed in range(5):
        gamma = (joint + draw(N, K, seed=seed)).softmax(dim=1)
        assert elbo(x, gamma, mu, VARIANCE) < likelihood


def test_leading_dimensions_and_a_hard_assignment() -> None:
    x, mu = draw(2, N, C, seed=0), draw(2, K, C, seed=1)
    gamma = torch.eye(K, dtype=x.dtype)[torch.arange(N) % K].expand(2, N, K)
    together = elbo(x, gamma, mu, VARIANCE)
    assert together.isfinite().all()
    alone = [elbo(*of_one, VARIANCE) for of_one in zip(x, gamma, mu)]
    assert torch.allclose(together, torch.stack(alone), rtol=1e-13)


def test_a_full_step_ends_at_the_best_bases() -> None:
    """η = 1 is EM: no other bases are better for the same responsibilities."""
    x, em = clusters(0), EM(C, K, 1, l2=False).double()
    [last] = em.trace(x)
    best = elbo(x, last.gamma, last.mu, 1.0)
    for seed in range(5):
        assert elbo(x, last.gamma, last.mu + 0.1 * draw(K, C, seed=seed), 1.0) < best
