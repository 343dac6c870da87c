"""One iteration of EM attention, and the gradients through its steps (HEMNet, Fig. 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True)
class Iteration:
    """An E-step and an N-step (Newton step) on N tokens of C channels with K bases.

    Args:
        x_e: the input tokens of the E-step, (..., N, C).
        x_n: the same tokens, as input of the N-step.
        before: the bases μ that the E-step uses, (..., K, C).
        gamma: the responsibilities γ, (..., N, K); rows sum to 1.
        mu: the bases after the N-step, (..., K, C).
    """

    x_e: Tensor
    x_n: Tensor
    before: Tensor
    gamma: Tensor
    mu: Tensor


def branch(x: Tensor) -> Tensor:
    """Returns a view of x that keeps the gradient that flows to x through it."""
    x = x.view_as(x)
    if x.requires_grad:
        x.retain_grad()
    return x


def input_gradients(iterations: Sequence[Iteration]) -> dict[str, float | list[float]]:
    """Computes the mean of |∂L/∂X| after a backward pass, as in HEMNet's Fig. 3b to 3d.

    Args:
        iterations: of one forward pass within ``EM.recording``.

    Returns:
        ``n_steps`` and ``e_steps``: one value per iteration, for the gradient through that step
        (the two terms of Eq. 17). ``total``: the value for the sum of all these gradients. A step
        without gradient counts as 0.
    """
    n_steps = [_gradient(iteration.x_n) for iteration in iterations]
    e_steps = [_gradient(iteration.x_e) for iteration in iterations]
    return {
        "n_steps": [gradient.abs().mean().item() for gradient in n_steps],
        "e_steps": [gradient.abs().mean().item() for gradient in e_steps],
        "total": reduce(torch.add, n_steps + e_steps).abs().mean().item(),
    }


def _gradient(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.grad is None else x.grad
