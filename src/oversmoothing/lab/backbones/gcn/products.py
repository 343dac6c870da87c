"""The product with the weights, ReLU and dropout of a graph convolution.

These functions compute their own gradients, for speed on a CPU.
"""

from typing import Any

import torch
from torch import Tensor

NARROW = 16  # with fewer columns, MKL's product takes several times as long as its transpose


def times(x: Tensor, weight: Tensor) -> Tensor:
    """Computes x @ weight. Shapes: x (S, N, C_in), weight (S, C_in, C_out) -> (S, N, C_out)."""
    return _Times.apply(x, weight)


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight if weight.shape[-1] >= NARROW else (weight.mT @ x.mT).mT

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors  # wider than the gradient if the product was under autocast
        dx = grad.to(weight.dtype) @ weight.mT if ctx.needs_input_grad[0] else None
        return dx, (grad.to(x.dtype).mT @ x).mT


def relu_dropout(x: Tensor, mask: Tensor) -> Tensor:
    """Computes relu(x) ⊙ mask; where the result is 0, so is the gradient.

    The product that follows saves the result for its backward pass anyway, so this needs no extra
    memory.

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
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, out, 0), None
