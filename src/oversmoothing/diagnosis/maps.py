"""Sees the attention maps of layers while a model runs, whatever library it is of."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from oversmoothing.metrics import smoothness

FUSED = F.scaled_dot_product_attention
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
TORCH_ATTENTION = F.multi_head_attention_forward
Seen = Callable[[int, Callable[[], Iterator[Tensor]]], None]


class SeeMaps(TorchFunctionMode):
    """Calls ``seen`` with every attention map that is computed in its context.

    A map is what ``scaled_dot_product_attention`` forms, or a softmax (B, heads, N, N). Fused
    attention stays fused: its map is computed beside it, one sample at a time.

    Args:
        seen: gets the number of tokens N, and a function that returns the maps (heads, N, N) of the
            samples in turn.
    """

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is FUSED:
            self._fused(*args, **kwargs)
        elif func is TORCH_ATTENTION:
            self._torch(*args, **kwargs)
        result = func(*args, **kwargs)
        if func in SOFTMAX and result.dim() == 4 and result.shape[-1] == result.shape[-2]:
            self.seen(result.shape[-1], lambda: iter(result))
        return result

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        if query.dim() != 4 or query.shape[-2] != key.shape[-2]:
            return
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        masks = None if attn_mask is None else _of_samples(attn_mask, query.shape[0])
        self.seen(
            query.shape[-2],
            lambda: (
                _map(q, k, None if masks is None else masks[b], is_causal, scale)
                for b, (q, k) in enumerate(zip(query, key))
            ),
        )

    def _torch(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> None:
        """Maps of nn.MultiheadAttention, which computes them itself for one sample at a time."""
        if query.dim() != 3 or query.shape[:2] != key.shape[:2]:
            return


def map_similarity(maps: Iterator[Tensor], keep: Tensor | None) -> Tensor:
    """Mean cosine of the rows of maps, mean over heads, one value a sample.

    Args:
        maps: (heads, N, N) of the samples in turn.
        keep: which rows are no padding, (B, N); None: all.
    """
    rows = (A if keep is None else A[:, keep[b]] for b, A in enumerate(maps))
    return torch.stack([smoothness.mean_cosine(A).mean() for A in rows]).cpu()


def _of_samples(mask: Tensor, size: int) -> Tensor:
    """Returns a mask for every sample. Shapes: (N, N) to (B, heads, N, N) -> (B, 1 or heads, N, N)."""
    while mask.dim() < 4:
        mask = mask[None]
    return mask.expand(size, *mask.shape[1:])


def _map(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Softmax attention of one sample, in float32 or better. Shapes: (heads, N, C) -> (heads, N, N)."""
    q, k = (x.float() if x.dtype.itemsize < 4 else x for x in (q, k))
    scores = q @ k.repeat_interleave(q.shape[0] // k.shape[0], dim=0).mT * scale
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores.masked_fill_(future, -torch.inf)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    return scores.softmax(dim=-1)
