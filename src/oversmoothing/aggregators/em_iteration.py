"""What one iteration of EM attention computes, and what of the gradient flows through its steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Iteration:
    """One E-step and one N-step on N tokens of C channels with K bases.

    Args:
        x_e: the tokens as they enter the E-step, (..., N, C).
        x_n: the same as they enter the N-step.
        before: the bases μ that the E-step uses, (..., K, C).
        gamma: its responsibilities γ, (..., N, K); rows sum to 1.
        mu: the bases after the N-step, (..., K, C).
    """

    x_e: Tensor
    x_n: Tensor
    before: Tensor
    gamma: Tensor
    mu: Tensor


def branch(x: Tensor) -> Tensor:
    """x as a tensor of its own, which keeps the gradient that flows into x through it."""
    x = x.view_as(x)
    if x.requires_grad:
        x.retain_grad()
    return x


def input_gradients(iterations: Sequence[Iteration]) -> dict[str, float | list[float]]:
    """Mean |∂L/∂X| after a backward pass: HEMNet's Fig. 3b to 3d.

    Args:
        iterations: of one forward pass under ``EM.recording``.

    Returns:
        ``n_steps`` and ``e_steps``: through each iteration's step alone (the two terms of Eq. 17);
        ``total``: of their sum. 0 where no gradient flows.
    """
    n_steps = [_gradient(iteration.x_n) for iteration in iterations]
    e_steps = [_gradient(iteration.x_e) for iteration in iterations]
    return {
        "n_steps": [gradient.abs().mean().item() for gradient in n_steps],
        "e_steps": [gradient.abs().mean().item() for gradient in e_steps],
        "total": sum(n_steps + e_steps).abs().mean().item(),
    }


def _gradient(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.grad is None else x.grad
