"""Attention maps in a running model: what is computed from them, a few rows at a time."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from oversmoothing.diagnosis.measures import BESIDE, OF_MAPS
from oversmoothing.diagnosis.unchanged import without_autocast
from oversmoothing.errors import InputError
from oversmoothing.metrics import smoothness
from oversmoothing.metrics.attention import MapSums, attention_gap

FUSED = F.scaled_dot_product_attention
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
OF_TORCH = F.multi_head_attention_forward
WATCHED = {FUSED, OF_TORCH, *SOFTMAX}
Rows = Callable[[int, Tensor | None], Iterator[Tensor]]  # some or all rows of a sample's map
ROWS = 16  # rows of a map: a piece has at least so many, and at most so many are kept
KEPT = 1 << 14  # largest number of entries in the rows of a map that are kept for a layer


class SeeMaps(TorchFunctionMode):
    """Calls ``seen`` with every attention map that is computed in its context.

    Maps are those of fused attention, those of nn.MultiheadAttention, and softmaxes of shape
    (B, heads, N, N). Fused attention stays fused; rows of its map are computed separately.

    Args:
        seen: gets the number of samples B and of tokens N, and a function from a sample and
            indices of rows (n,), or None for all, to those rows in pieces, (heads, ≤ n, N).

    Attributes:
        sinks: whether a part of the rows goes to no token.
    """

    def __init__(self, seen: Callable[[int, int, Rows], None]) -> None:
        super().__init__()
        self.seen, self.sinks = seen, False

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in WATCHED:
            return func(*args, **kwargs)
        if func is FUSED:
            self._fused(*args, **kwargs)
        elif func is OF_TORCH:
            self._of_torch(inspect.signature(func).bind(*args, **kwargs).arguments)
        result = func(*args, **kwargs)
        if func in SOFTMAX and result.dim() == 4 and result.shape[-1] - result.shape[-2] in (0, 1):
            A = result[..., : result.shape[-2]]  # without a sink's column (gpt-oss)
            self.sinks |= A.shape != result.shape
            self._tell(A, A.shape[0], A.shape[-1], partial(_rows_of_map, A))
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
        with torch.no_grad(), without_autocast(x.device):  # a checkpoint counts what is saved
            self.seen(batch, tokens, rows)


def of_maps(
    tokens: int,
    samples: Sequence[tuple[int, Tensor | None]],
    rows: Rows,
    measures: Collection[str],
) -> dict[str, Tensor]:
    """Measures the maps of a call, one value per sample, and keeps some rows of the first one.

    Args:
        tokens, rows: as passed by ``SeeMaps``.
        samples: the row along B of every sample, and the places of its tokens in it; None: all.
        measures: names; others than ``OF_MAPS`` and ``BESIDE`` are ignored.

    Raises:
        InputError: the samples have no tokens.
    """
    if not tokens:
        raise InputError("inputs: the samples have no tokens; give samples with at least one")
    names = [name for name in OF_MAPS if name in measures]
    kept: list[Tensor] = []
    sums, gaps = [], []
    for i, (b, which) in enumerate(samples if names else samples[:1]):
        pieces, n = rows(b, which), tokens if which is None else len(which)
        sums.append(MapSums.of(pieces if i else _keeping(pieces, n, kept)))
        if "attention_gap" in names:
            A = torch.cat([*rows(b, which)], dim=-2)
            gaps.append(attention_gap(A[None])[0])
    found = MapSums(*map(torch.stack, zip(*sums))).measures()
    found |= {"attention_gap": torch.stack(gaps)} if gaps else {}
    measured = {name: found[name] for name in names}
    return measured | ({BESIDE: kept[0]} if BESIDE in measures else {})


def _keeping(pieces: Iterator[Tensor], n: int, kept: list[Tensor]) -> Iterator[Tensor]:
    """Yields the pieces (heads, ≤ n, N) of a map, and keeps a few of its n rows, evenly spaced."""
    start, rows = 0, []
    for piece in pieces:
        width = piece.shape[0] * piece.shape[2]
        few = max(1, min(ROWS, KEPT // width))
        places = [round(i * (n - 1) / max(1, few - 1)) - start for i in range(few)]
        inside = [place for place in places if 0 <= place < piece.shape[1]]
        rows.append(piece[:, inside].float().cpu())
        start += piece.shape[1]
        yield piece
    kept.append(torch.cat(rows, dim=1))


def _precise(x: Any) -> Any:
    """Converts half precision to float32, as autocast may mix both."""
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.half, torch.bfloat16) else x


def _rows_of_map(A: Tensor, sample: int, rows: Tensor | None) -> Iterator[Tensor]:
    """Yields rows of a given map, in float32 or wider, in which they are summed.

    Shapes: A (B, heads, N, N), rows (n,) -> (heads, ≤ n, N).
    """
    for i in _few(rows, A[sample]):
        yield _precise(A[sample, :, i])


def _rows_of_torch(given: dict[str, Any], sample: int, rows: Tensor | None) -> Iterator[Tensor]:
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
    rows: Tensor | None,
) -> Iterator[Tensor]:
    """Yields rows of softmax(Q Kᵀ · scale), in float32 or wider. Shapes: as ``_rows_of_map``.

    Keys and values may have fewer heads than queries (grouped-query attention).
    """
    q, k = _precise(query[sample]) * scale, _precise(key[sample])
    groups = q.shape[0] // k.shape[0]
    k = k.repeat_interleave(groups, dim=0) if groups > 1 else k
    places = torch.arange(k.shape[1], device=q.device) if causal else None
    for i in _few(rows, q[..., :1].expand(-1, -1, k.shape[1])):
        scores = q[:, i] @ k.mT
        if places is not None:
            scores.masked_fill_(places > places[i][:, None], -torch.inf)
        if mask is not None:
            of_rows = mask[sample, :, i]
            hidden = of_rows.dtype == torch.bool
            scores = scores.masked_fill(~of_rows, -torch.inf) if hidden else scores + of_rows
        yield scores.softmax(dim=-1)


def _few(rows: Tensor | None, A: Tensor) -> Iterable[Tensor | slice]:
    """Yields some rows of a map (heads, N, N) at a time, to limit the memory of copies."""
    heads, N, width = A.shape
    few = max(ROWS, 2 * smoothness.AT_ONCE // (heads * width))  # in float32
    if rows is not None and len(rows) < N:
        return rows.to(A.device).split(few)
    return (slice(start, start + few) for start in range(0, N, few))
