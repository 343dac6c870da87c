"""Layer normalisation of each token over its channels (Ba, Kiros, Hinton, 2016)."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context
from oversmoothing.aggregators.checks import check_counts, check_eps


class LayerNorm(After):
    """Computes (x − mean_C x) / sqrt(var_C x + eps), then a learned scale and shift per channel.

    Args:
        dim: channels C.
        eps: added to the variance.
        affine: learn the scale and the shift.

    Raises:
        InputError: eps is negative.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    can_be_causal: ClassVar[bool] = True
    reads_edges: ClassVar[bool] = False
    reads_mask = True
    tokenwise: ClassVar[bool] = True

    def __init__(self, dim: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        check_counts(dim=dim)
        check_eps(eps)
        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=affine)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return self.norm(x)


def of_seeds(norms: Iterable[LayerNorm], x: Tensor) -> Tensor:
    """Applies the LayerNorm of each of S seeds.

    Args:
        norms: one for each seed; they differ only in the learned scale and shift.

    Shapes: x (S, N, C) -> (S, N, C).
    """
    layers = [own.norm for own in norms]
    eps, affine = layers[0].eps, layers[0].elementwise_affine
    params = [getattr(n, name) for name in ("weight", "bias") for n in layers] if affine else []
    if x.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        return _OfSeeds.apply(x, eps, *params)
    normed = F.layer_norm(x, x.shape[-1:], eps=eps)
    if not affine:
        return normed
    scale, shift = _stacked(params)
    return torch.addcmul(shift, normed, scale)


class _OfSeeds(torch.autograd.Function):
    """The LayerNorms of S seeds as matrix products and sums, for speed on a CPU.

    It is faster than torch's LayerNorm if C is small.

    Args:
        x: (S, N, C).
        params: S scales, then S shifts, each (C,); empty without an affine map.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, *params: Tensor) -> Tensor:
        C = x.shape[-1]
        y = x - (x @ x.new_full((C,), 1 / C))[..., None]
        norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        factor = norm.square_().div_(C).add_(eps).rsqrt_()
        y.mul_(factor)
        if not params:
            ctx.save_for_backward(y, factor, None)
            return y
        scale, shift = _stacked(params)
        ctx.save_for_backward(y, factor, scale)
        return torch.addcmul(shift, y, scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, factor, scale = ctx.saved_tensors
        grad, of_params = grad.contiguous(), []
        if scale is not None:
            scaled = grad * y
            of_params = [*scaled.sum(dim=1), *grad.sum(dim=1)]
            grad = torch.mul(grad, scale, out=scaled)
        mean, one = torch.zeros_like(factor), torch.ones_like(factor)  # y is normalised already
        args = grad, y, y.shape[-1:], mean, one, None, None, [True, False, False]
        dx, *_ = torch.ops.aten.native_layer_norm_backward(*args)
        return dx.mul_(factor), None, *of_params


def _stacked(params: Sequence[Tensor]) -> Tensor:
    """Returns scales and shifts, (2, S, 1, C)."""
    return torch.stack([*params]).unflatten(0, (2, -1)).unsqueeze(-2)
