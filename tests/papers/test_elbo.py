"""The evidence lower bound is its definition."""

import pytest
import torch
from tokens import random_tokens as draw
from torch import Tensor
from torch.distributions import MultivariateNormal

from oversmoothing.lab.papers.hemnet_elbo import elbo

N, C, K = 60, 5, 4
VARIANCE = 0.8


def log_densities(x: Tensor, mu: Tensor) -> Tensor:
    """Shapes: x (N, C), mu (K, C) -> (N, K)."""
    covariance = VARIANCE * torch.eye(C, dtype=x.dtype)
    return torch.stack([MultivariateNormal(m, covariance).log_prob(x) for m in mu], dim=1)


def test_equals_its_definition() -> None:
    x, mu, gamma = draw(N, C, seed=0), draw(K, C, seed=1), draw(N, K, seed=2).softmax(dim=-1)
    expected = (gamma * (log_densities(x, mu) - gamma.log())).sum()
    assert elbo(x, gamma, mu, VARIANCE).item() == pytest.approx(expected.item(), rel=1e-12)


def test_leading_dimensions_and_a_hard_assignment() -> None:
    x, mu = draw(2, N, C, seed=0), draw(2, K, C, seed=1)
    gamma = torch.eye(K, dtype=x.dtype)[torch.arange(N) % K].expand(2, N, K)
    together = elbo(x, gamma, mu, VARIANCE)
    assert together.isfinite().all()
    alone = [elbo(*of_one, VARIANCE) for of_one in zip(x, gamma, mu)]
    assert torch.allclose(together, torch.stack(alone), rtol=1e-13)
