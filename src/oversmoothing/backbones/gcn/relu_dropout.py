"""ReLU and dropout in one function that keeps nothing but its result."""

from typing import Any

import torch
from torch import Tensor


def relu_dropout(x: Tensor, mask: Tensor) -> Tensor:
    """Computes relu(x) ⊙ mask; where the result is 0, so is the gradient.

    The product that follows keeps the result as well, so this takes no memory of its own.

    Args:
        x: of any shape.
        mask: 0 or 1, of the same shape.
    """
    return _ReluDropout.apply(x, mask)


class _ReluDropout(torch.autograd.Function):
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
