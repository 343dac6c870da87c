"""Products of features and weights, for several seeds at once, node after node in memory.

A tensor (S, N, C) whose memory has the order (N, S, C) is, without a copy, the operand (N, S·C) of
the sparse product that serves all seeds.
"""

from typing import Any

import torch
from torch import Tensor


def node_major(like: Tensor, S: int, N: int, C: int) -> Tensor:
    """Returns an empty tensor (S, N, C) whose memory has the order (N, S, C)."""
    return like.new_empty(N, S, C).transpose(0, 1)


def times(x: Tensor, weight: Tensor, factors: Tensor | None = None) -> Tensor:
    """Computes (x ⊙ factors) @ weight.

    Args:
        x: (S, N, C_in).
        weight: (S, C_in, C_out).
        factors: of dropout, (S, N, C_in); None: 1.

    Shapes: -> (S, N, C_out), with memory in the order of ``node_major``.
    """
    return _Times.apply(x, weight, factors)


def relu_dropout(x: Tensor, mask: Tensor) -> Tensor:
    """Computes relu(x) ⊙ mask; where the result is 0, so is the gradient.

    Args:
        x: (S, N, C).
        mask: 0 or 1, of the same shape.
    """
    return _ReluDropout.apply(x, mask)


class _ReluDropout(torch.autograd.Function):
    """Keeps nothing but its result, which the next product keeps as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        out = x.clamp(min=0).mul_(mask)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, out, 0), None


class _Times(torch.autograd.Function):
    """Keeps one copy of x, and writes where the next product reads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, factors: Tensor | None) -> Tensor:
        x = x if factors is None else x * factors
        ctx.save_for_backward(x, weight, factors)
        S, N, _ = x.shape
        return torch.bmm(x, weight, out=node_major(x, S, N, weight.shape[2]))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight, factors = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = torch.bmm(grad, weight.mT, out=node_major(x, *x.shape))
            dx = dx if factors is None else dx.mul_(factors)
        if ctx.needs_input_grad[1]:
            dw = x.mT @ grad
        return dx, dw, None
