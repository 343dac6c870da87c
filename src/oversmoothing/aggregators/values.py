"""The terms of attention αV + βMV + γv̄ beside the product: v̄, and the value of a token itself.

They depend on the values alone, so M is not formed and attention stays fused.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.checks import PADDING
from oversmoothing.errors import InputError


def per_head(parameter: Tensor) -> Tensor:
    """Returns one number for each head, shaped for tokens: (H,) -> (H, 1, 1); of one head (1,)."""
    return parameter if len(parameter) == 1 else parameter[:, None, None]


def with_gradients(x: Tensor, *parameters: float | Tensor) -> Tensor:
    """Returns x, and gives parameters that it does not need gradients of 0.

    DistributedDataParallel waits for a gradient of every parameter.
    """
    return sum((0 * own.to(x) for own in parameters if isinstance(own, nn.Parameter)), x)


def own_values(v: Tensor, num_queries: int, context: Context) -> Tensor:
    """Returns the value of every mixed token itself.

    With a mask and fewer queries than values, it is the last value that the query sees, since a
    cache of fixed size ends in places that hold no token yet.

    Raises:
        InputError: there are fewer values than mixed tokens, as in attention to pooled tokens.

    Shapes: v (..., N, C) -> (..., N_q, C).
    """
    N = v.shape[-2]
    if num_queries > N:
        raise InputError(
            f"model: an attention mixes {N} values for {num_queries} tokens, which so have no "
            "values of their own; choose another method, or blocks= without this one"
        )
    if num_queries == N or context.mask is None:
        return v[..., N - num_queries :, :]
    seen = torch.atleast_2d(context.mask).expand(*context.mask.shape[:-2], num_queries, N)
    if context.causal:
        seen = seen & seen.new_ones(num_queries, N).tril(N - num_queries)
    last = N - 1 - seen.flip(-1).int().argmax(dim=-1)
    index = last[..., None].expand(*v.shape[:-2], num_queries, v.shape[-1])
    return v.gather(-2, index)


def mean_of_seen(v: Tensor, num_queries: int, context: Context, skipped: int = 0) -> Tensor:
    """Returns v̄, the mean of the values that each token sees, without the first ``skipped`` ones.

    Causal sums of half-precision values are in float32. A token that sees no values gets 0.

    Raises:
        InputError: the mask has another number of queries.

    Shapes: v (..., N, C) -> (..., N_q or 1, C).
    """
    N, counted = v.shape[-2], v[..., skipped:, :]
    precise = torch.promote_types(v.dtype, torch.float32)
    if context.mask is not None:
        seen = torch.atleast_2d(context.mask)
        if seen.shape[-2] not in (1, num_queries):
            raise InputError(
                f"context.mask: expected (..., 1, {N}) or (..., {num_queries}, {N}), got "
                f"{tuple(seen.shape)}; {PADDING}"
            )
        if context.causal:
            seen = seen & seen.new_ones(num_queries, N).tril(N - num_queries)
        seen = seen[..., skipped:].to(precise)
        shares = (seen / seen.sum(dim=-1, keepdim=True).clamp(min=1)).to(v.dtype)
        with torch.autocast(v.device.type, enabled=False):  # a difference from it needs all digits
            return shares @ counted
    if not context.causal:
        if skipped < N:
            return counted.mean(dim=-2, keepdim=True)
        return torch.zeros_like(v[..., :1, :])
    if skipped:  # zeros replace the skipped values, so that positions do not change
        v = F.pad(counted, (0, 0, min(skipped, N), 0))
    count = (torch.arange(1, N + 1, device=v.device) - skipped).clamp(min=1)[:, None]
    sums = v.cumsum(dim=-2, dtype=precise)
    return (sums / count).to(v.dtype)[..., -num_queries:, :]
