"""Observes the attention maps of a running model of any library."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from oversmoothing.diagnosis.unchanged import without_autocast
from oversmoothing.metrics import smoothness

FUSED = F.scaled_dot_product_attention
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
OF_TORCH = F.multi_head_attention_forward
Rows = Callable[[int, Tensor], Iterator[Tensor]]  # some rows of a sample's map, (heads, n, N)
ROWS = 16  # smallest number of rows of a piece


class SeeMaps(TorchFunctionMode):
    """Calls ``seen`` with every attention map that is computed in its context.

    Maps are those of fused attention, those of nn.MultiheadAttention, and softmaxes of shape
    (B, heads, N, N). Fused attention stays fused; rows of its map are computed separately.

    Args:
        seen: gets the number of samples B and of tokens N, and a function from a sample and
            indices of rows (n,) to those rows in pieces, (heads, ≤ n, N).
    """

    def __init__(self, seen: Callable[[int, int, Rows], None]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is FUSED:
            self._fused(*args, **kwargs)
        elif func is OF_TORCH:
            self._of_torch(inspect.signature(func).bind(*args, **kwargs).arguments)
        result = func(*args, **kwargs)
        if func in SOFTMAX and result.dim() == 4 and result.shape[-1] == result.shape[-2]:
            self._tell(result, result.shape[0], result.shape[-1], partial(_rows_of_map, result))
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
        **_: Any,
    ) -> None:
        if query.dim() == key.dim() == 4 and query.shape[-2] == key.shape[-2]:
            scale = query.shape[-1] ** -0.5 if scale is None else scale
            query, key = _as_many(query, key)
            if attn_mask is not None:
                sizes = (query.shape[0], 1, query.shape[-2], key.shape[-2])
                attn_mask = attn_mask.broadcast_to(torch.broadcast_shapes(attn_mask.shape, sizes))
            rows = partial(_rows_of_fused, query, key, attn_mask, is_causal, scale)
            self._tell(query, query.shape[0], query.shape[-2], rows)

    def _of_torch(self, given: dict[str, Any]) -> None:
        query = given["query"]
        if query.dim() == 3 and query.shape[:2] == given["key"].shape[:2]:
            rows = partial(_rows_of_torch, {name: _precise(value) for name, value in given.items()})
            self._tell(query, query.shape[1], query.shape[0], rows)

    def _tell(self, x: Tensor, batch: int, tokens: int, rows: Rows) -> None:
        with without_autocast(x.device):
            self.seen(batch, tokens, rows)


def map_similarity(batch: int, tokens: int, rows: Rows, keep: Tensor | None) -> Tensor:
    """Mean cosine of the rows i < j of a map, mean over heads, one value per sample.

    Args:
        batch, tokens, rows: as passed by ``SeeMaps``.
        keep: true for rows that are not padding, (B, N); None: all.
    """
    everything = torch.arange(tokens)
    wanted = (everything if keep is None else keep[b].nonzero()[:, 0] for b in range(batch))
    return torch.stack([smoothness.mean_cosine_of(rows(b, i)).mean() for b, i in enumerate(wanted)])


def _precise(x: Any) -> Any:
    """Converts half precision to float32, as autocast may mix both."""
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.half, torch.bfloat16) else x


def _rows_of_map(A: Tensor, sample: int, rows: Tensor) -> Iterator[Tensor]:
    """Yields rows of a given map. Shapes: A (B, heads, N, N), rows (n,) -> (heads, ≤ n, N)."""
    for i in _few(rows.to(A.device), A.shape[1] * A.shape[-1]):
        yield A[sample, :, i]


def _rows_of_torch(given: dict[str, Any], sample: int, rows: Tensor) -> Iterator[Tensor]:
    """Computes the map of one sample with torch's function, whose tokens are (N, B, C)."""
    own = dict(given, need_weights=True, average_attn_weights=False)
    for name in ("query", "key", "value"):
        own[name] = given[name][:, sample : sample + 1]
    if (padding := given.get("key_padding_mask")) is not None:
        own["key_padding_mask"] = padding[sample : sample + 1]
    if (mask := given.get("attn_mask")) is not None and mask.dim() == 3:
        heads = given["num_heads"]
        own["attn_mask"] = mask[sample * heads : (sample + 1) * heads]
    maps: Any = OF_TORCH(**own)[1]
    yield from _rows_of_map(maps, 0, rows)


def _as_many(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Repeats queries or keys of one sample or one head for all. Shapes: (B, heads, N, c)."""
    B, heads = max(query.shape[0], key.shape[0]), max(query.shape[1], key.shape[1])
    return query.expand(B, heads, -1, -1), key.expand(B, -1, -1, -1)


def _rows_of_fused(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    sample: int,
    rows: Tensor,
) -> Iterator[Tensor]:
    """Yields rows of softmax(Q Kᵀ · scale), in float32 or wider. Shapes: as ``_rows_of_map``.

    Keys and values may have fewer heads than queries (grouped-query attention).
    """
    q, k = _precise(query[sample]), _precise(key[sample])
    k = k.repeat_interleave(q.shape[0] // k.shape[0], dim=0)
    for i in _few(rows.to(q.device), q.shape[0] * k.shape[1]):
        scores = q[:, i] @ k.mT * scale
        if causal:
            columns = torch.arange(scores.shape[-1], device=i.device)
            scores.masked_fill_(columns > i[:, None], -torch.inf)
        if mask is not None:
            of_rows = mask[sample, :, i]
            hidden = of_rows.dtype == torch.bool
            scores = scores.masked_fill(~of_rows, -torch.inf) if hidden else scores + of_rows
        yield scores.softmax(dim=-1)


def _few(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """Splits indices of rows of ``size`` numbers, to limit the memory of float64 copies."""
    return rows.split(max(ROWS, smoothness.AT_ONCE // size))
