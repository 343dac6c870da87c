"""Checks of options that several aggregators have, and statistics of the unmasked tokens."""

import math
from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any
from warnings import warn

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

PADDING = "a padding mask (B, N) needs the shape (B, 1, N): mask[:, None, :]"


def check_finite(option: str, value: float | Tensor, hint: str = "") -> None:
    """Raises InputError unless a number, or every entry of a tensor, is finite."""
    known = isinstance(value, int | float | Tensor)
    if not known or not torch.as_tensor(value, dtype=torch.float64, device="cpu").isfinite().all():
        raise InputError(f"aggregator.{option}: expected a finite number, got {value!r}{hint}")


def check_counts(**counts: int) -> None:
    """Raises InputError unless these options are whole numbers of 1 or more."""
    for name, count in counts.items():
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise InputError(
                f"aggregator.{name}: expected a whole number of 1 or more, got {count!r}"
            )


def check_shares(**shares: float) -> None:
    """Raises InputError unless these options are numbers from 0 to 1."""
    for name, share in shares.items():
        if not 0 <= number(share) <= 1:
            raise InputError(f"aggregator.{name}: expected a number from 0 to 1, got {share!r}")


def check_temperature(temperature: float) -> None:
    """Raises InputError unless the temperature of a softmax is above 0."""
    if not number(temperature) > 0:
        raise InputError(f"aggregator.temperature: expected a number above 0, got {temperature!r}")


def number(value: Any) -> float:
    """Returns a number as float; anything else is NaN, which is in no range."""
    single = isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    return float(value) if single else math.nan


def check_eps(eps: float) -> None:
    """Raises InputError unless eps, which is added under a root, is finite and 0 or more."""
    check_finite("eps", eps)
    if eps < 0:
        raise InputError(f"aggregator.eps: expected 0 or more, got {eps}")


def like(option: float | Tensor, x: Tensor) -> float | Tensor:
    """Returns an option with the type and device of x if it is a tensor."""
    return option.to(x) if isinstance(option, Tensor) else option


def padding(context: Context) -> Tensor | None:
    """Returns the mask of a context as (..., 1, N); None if no token is hidden.

    Raises:
        InputError: the context is causal, or its mask differs between tokens.
    """
    mask = None if context.mask is None else torch.atleast_2d(context.mask)
    if context.causal or (mask is not None and mask.shape[-2] != 1):
        got = "causal=True" if mask is None or context.causal else str(tuple(mask.shape))
        raise InputError(
            f"context.mask: expected (..., 1, N), which hides the same tokens from all, got {got}; "
            f"{PADDING}, or choose an aggregator that can be causal, such as centered"
        )
    return mask


def mean_of_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the mean over unmasked tokens; 0 if all are masked. (..., N, C) -> (..., 1, C)."""
    if mask is None:  # over no tokens the mean is NaN, and so are gradients
        return x.mean(dim=-2, keepdim=True) if x.shape[-2] else x.sum(dim=-2, keepdim=True)
    precise = torch.promote_types(x.dtype, torch.float32)  # sums leave float16's range
    seen = mask.to(precise)
    with torch.autocast(x.device.type, enabled=False):
        return (seen @ x.to(precise) / seen.sum(dim=-1, keepdim=True).clamp(min=1)).to(x.dtype)


def over_batch(
    norm: Callable[[Tensor], Tensor], x: Tensor, mask: Tensor | None, training: bool
) -> Tensor:
    """Applies a batch norm of rows, (n, C) -> (n, D), to all unmasked tokens; others become 0.

    In evaluation no row depends on others, so all are normed: torch.export cannot follow a number
    of rows that depends on the mask.

    Raises:
        InputError: there is a single token in training, which has no variance.

    Shapes: x (..., N, C), mask (..., 1, N) -> (..., N, D).
    """
    seen = None if mask is None else mask.mT.expand(*x.shape[:-1], 1)[..., 0]
    if seen is not None:
        rows = x[seen] if training else x.masked_fill(~seen[..., None], 0).flatten(0, -2)
    else:
        rows = x.flatten(0, -2)
    if training and len(rows) == 1:
        raise InputError(
            "aggregator: a batch norm needs 2 tokens or more in training, got 1; give a larger "
            "batch, or call eval()"
        )
    normed = norm(rows)
    shape = *x.shape[:-1], normed.shape[-1]
    if seen is None:
        return normed.view(shape)
    if not training:
        return normed.view(shape).masked_fill(~seen[..., None], 0)
    return normed.new_zeros(shape).index_put((seen,), normed)


@cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton, which comes with torch for CUDA, makes kernels for a GPU, from Ampere on."""
    if torch.version.cuda is None or find_spec("triton") is None:
        return False
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    from oversmoothing.aggregators.kernels.centering import AddMean

    x = torch.zeros(2, 2, 16, 16, device=device)
    try:
        AddMean.apply(x, x, 1.0)
    except Exception as error:  # Triton needs a C compiler and Python's headers
        said = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        warn(f"Triton cannot make kernels ({said[0]}); slower ones of torch are used", stacklevel=2)
        return False
    return True


def runs_triton(*tensors: Tensor) -> bool:
    """Whether kernels of Triton compute with these tensors.

    They have to be plain tensors on the current GPU, outside of ``torch.compile``, which makes its
    own kernels, ``torch.jit.trace``, ``torch.func`` and forward-mode differentiation.
    """
    if not all(x.is_cuda and type(x) in (Tensor, nn.Parameter) for x in tensors):
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if any(x.get_device() != torch.cuda.current_device() for x in tensors):
        return False  # Triton launches on the current one, also to try
    if not all(has_triton(x.device) for x in tensors):
        return False
    return not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0


def takes_kernels(*tensors: Tensor) -> bool:
    """Whether kernels of Triton for float32 compute with these tensors, see ``runs_triton``."""
    if not all(x.dtype == torch.float32 for x in tensors):
        return False
    return runs_triton(*tensors) and not torch.is_autocast_enabled("cuda")


def differentiable_once(backward: Callable) -> Callable:
    """Makes the second derivative of a ``torch.autograd.Function`` raise.

    With torch's ``once_differentiable``, ``torch.autograd.grad`` leaves this part out silently.
    """

    @wraps(backward)
    def once(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return found
        sources = *grads, *ctx.saved_tensors
        return tuple(own if own is None else _Last.apply(own, *sources) for own in found)

    return once


class _Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, found: Tensor, *sources: Tensor) -> Tensor:
        return found.view_as(found)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        raise NotImplementedError("LayerNorm and ContraNorm of graphs have no second derivatives")
