"""Layer normalisation of each token over its channels (Ba, Kiros, Hinton, 2016)."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context

ROWS = 2048  # of a part; with 32 channels it fits into the second cache of a core


class LayerNorm(After):
    """Computes (x − mean_C x) / sqrt(var_C x + eps), then a learned scale and shift per channel.

    Args:
        dim: channels C.
        eps: added to the variance.
        affine: learn the scale and the shift.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    can_be_causal: ClassVar[bool] = True
    reads_edges: ClassVar[bool] = False
    reads_mask = True

    def __init__(self, dim: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=affine)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return self.norm(x)


def of_seeds(norms: Iterable[LayerNorm], x: Tensor) -> Tensor:
    """Applies a LayerNorm for each seed.

    Args:
        norms: S, which differ in nothing but the learned scale and shift.

    Shapes: x (S, N, C) -> (S, N, C), with memory in the order (N, S, C).
    """
    layers = [own.norm for own in norms]
    x, C = x.transpose(0, 1).contiguous(), x.shape[-1]
    fast = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    normed = _Normed.apply(x, layers[0].eps) if fast else F.layer_norm(x, (C,), eps=layers[0].eps)
    if layers[0].elementwise_affine:
        scale, shift = (
            torch.stack([getattr(n, name) for n in layers]) for name in ("weight", "bias")
        )
        normed = torch.addcmul(shift, normed, scale)
    return normed.transpose(0, 1)


class _Normed(torch.autograd.Function):
    """(x − mean_C x) / sqrt(var_C x + eps) by products, faster on a CPU than torch's if C is small.

    Shapes: x (N, S, C), contiguous -> (N, S, C).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        C = x.shape[-1]
        share, y, scale = x.new_full((C,), 1 / C), torch.empty_like(x), x.new_empty(*x.shape[:2], 1)
        rows = (t.flatten(0, 1).split(ROWS) for t in (x, y, scale))
        for own, out, factor in zip(*rows):  # parts that stay in the cache
            torch.sub(own, (own @ share)[:, None], out=out)
            factor[:, 0] = ((out.square() @ share) + eps).rsqrt_()
            out.mul_(factor)
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        mean, one = torch.zeros_like(scale), torch.ones_like(scale)  # y is normalised already
        shape = y.shape[-1:]
        args = grad.contiguous(), y, shape, mean, one, None, None, [True, False, False]
        dx, *_ = torch.ops.aten.native_layer_norm_backward(*args)
        return dx.mul_(scale), None
