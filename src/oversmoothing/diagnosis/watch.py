"""Forward hooks that measure the layers of a model: their tokens and their attention maps."""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from oversmoothing.diagnosis.calls import has_forward
from oversmoothing.diagnosis.samples import Graphs, Plan, Sequences
from oversmoothing.diagnosis.tokens import find_tokens
from oversmoothing.diagnosis.unchanged import without_autocast
from oversmoothing.errors import InputError, meant
from oversmoothing.metrics import smoothness

ATTENTION = "attention_similarity"
Of = Callable[[Tensor], Tensor]
OF_TOKENS: dict[str, Of] = {
    "cosine": smoothness.mean_cosine,
    "effective_rank": smoothness.effective_rank,
    "mean_share": smoothness.mean_share,
    "norm": smoothness.mean_norm,
}
OF_EDGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dirichlet_energy": smoothness.dirichlet_energy,
    "mad": smoothness.mean_average_distance,
}
MEASURES = (*OF_TOKENS, *OF_EDGES, ATTENTION)
Metrics = str | Of | Iterable[str | Of] | None
FUSED = F.scaled_dot_product_attention
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
OF_TORCH = F.multi_head_attention_forward
Rows = Callable[[int, Tensor], Iterator[Tensor]]  # some rows of a sample's map, (heads, n, N)
ROWS = 16  # smallest number of rows of a piece
Row = tuple[str, int]  # the name of a layer, and the number of its call from 0


class OwnMeasure(str):
    """The name of a function of the user, and the function: tokens (b, n, C) -> (b,)."""

    function: Of

    @classmethod
    def of(cls, function: Of) -> "OwnMeasure":
        """Names a function by its ``__name__``, or else by its class."""
        own = cls(getattr(function, "__name__", type(function).__name__))
        own.function = function
        return own

    def __call__(self, x: Tensor) -> Tensor:
        """Measures samples of one size. Raises InputError unless there is one number for each."""
        found: Any = self.function(x)
        if not isinstance(found, Tensor) or found.shape != x.shape[:1]:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"metrics: {self} returns {got} for tokens {tuple(x.shape)}; return one number "
                f"for each sample, a tensor {tuple(x.shape[:1])}"
            )
        return found.double()


def chosen_measures(metrics: Metrics) -> tuple[str, ...]:
    """Returns the names of the measures; None chooses all.

    Raises:
        InputError: an unknown name, something else, or two measures of one name.
    """
    if metrics is None:
        return MEASURES
    single = isinstance(metrics, str) or not isinstance(metrics, Iterable)
    wanted: tuple[Any, ...] = (metrics,) if single else tuple(metrics)  # type: ignore[arg-type]
    for one in wanted:
        if not callable(one) and one not in MEASURES:
            way = meant(one, MEASURES) if isinstance(one, str) else "give names or functions"
            raise InputError(f"metrics: unknown {one!r}; {way}")
    if not wanted:
        raise InputError(f"metrics: got an empty list; expected some of {', '.join(MEASURES)}")
    own = [OwnMeasure.of(one) for one in wanted if callable(one)]
    if double := [n for i, n in enumerate(own) if n in (*MEASURES, *own[:i])]:
        raise InputError(f"metrics: two are named {double[0]}; give the function another __name__")
    return (*(name for name in MEASURES if name in wanted), *own)


def measure(
    name: str, pieces: Iterable[tuple[Tensor, Tensor | None]], measures: Collection[str]
) -> dict[str, Tensor]:
    """Measures the samples of a layer.

    Args:
        name: of the layer, for error messages.
        pieces: tokens (b, n, C) of one or more samples, and the edges of a graph or None.
        measures: names; those that need edges are skipped if there are none.

    Returns:
        One value per sample for every measure, float64 on the CPU. Samples of one token are left
        out.

    Raises:
        InputError: tokens are not finite.
    """
    own = {str(m): m for m in measures if isinstance(m, OwnMeasure)}
    wanted = {m: of_tokens for m, of_tokens in (OF_TOKENS | own).items() if m in measures}
    found: dict[str, list[Tensor]] = {m: [] for m in wanted}
    for x, edges in ((x, edges) for x, edges in pieces if x.shape[1] > 1):
        if not x.isfinite().all():
            raise InputError(
                f"{name}: returns values that are not finite, as the first layer that does; look "
                "at the inputs and the weights, and run the model in float32 or bfloat16"
            )
        for measured, of_tokens in wanted.items():
            found[measured].append(of_tokens(x))
        for measured, of_edges in OF_EDGES.items():
            if measured in measures and edges is not None:
                found.setdefault(measured, []).append(of_edges(x, edges))
    none = [torch.empty(0, dtype=torch.float64)]
    return {measured: torch.cat(values or none).cpu() for measured, values in found.items()}


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


class Watch:
    """Measures the outputs of layers in hooks, and keeps numbers only.

    Args:
        layers: by name.
        measures: names.
        layout: of the outputs; None: inferred if it is unambiguous.

    Attributes:
        values: one value per sample for every call of a layer, in their order, and every measure.
        sizes: the number of tokens of every sample, in the first layer.
        inputs: the number of inputs of the model, as far as it is known.
        left_out: the rows of ``values`` from which something is left out, by its description.
        isolated: number of nodes without neighbours, in the first layer.
        one_way, repeated: numbers of edges without a reverse, and of edges that are listed before.
        weighted: whether edges have weights, which are ignored.
        bounds: the largest possible effective rank of every row of ``values``.
        unit: what the tokens are.
    """

    def __init__(
        self, layers: dict[str, nn.Module], measures: tuple[str, ...], layout: str | None
    ) -> None:
        self.layers, self.measures, self.layout = layers, measures, layout
        self.values: dict[Row, dict[str, list[Tensor]]] = {}
        self.sizes: list[int] = []
        self.inputs, self.weighted = 0, False
        self.isolated = self.one_way = self.repeated = 0
        self.bounds: dict[Row, int] = {}
        self.left_out: dict[str, set[Row]] = {}
        self.unit: Literal["tokens", "nodes"] = "tokens"

    @contextmanager
    def during(self, plan: Plan) -> Iterator[None]:
        """Context that measures the call of the model in it.

        Raises:
            InputError: a layer was not called, or its outputs cannot be measured.
        """
        self.plan = plan
        self.calls: Counter[str] = Counter()
        self.running: list[tuple[str, list[tuple[int, Tensor]]]] = []  # layers, maps seen in them
        with ExitStack() as stack:
            for name, layer in self.layers.items():
                stack.callback(layer.register_forward_pre_hook(self._begin(name)).remove)
                stack.callback(layer.register_forward_hook(self._end).remove)
            stack.enter_context(plan.padding.followed(self.layers))
            if ATTENTION in self.measures:
                stack.enter_context(SeeMaps(self._see))
            yield
        if silent := [name for name in self.layers if not self.calls[name]]:
            inside = [
                f", such as {silent[0]}.{part}"
                for part, module in self.layers[silent[0]].named_children()
                if has_forward(module)
            ]
            raise InputError(
                f"layers: {silent[0]} is not called by the model's forward; choose other layers"
                f"{''.join(inside[:1])}"
            )

    def _begin(self, name: str) -> Callable[..., None]:
        return lambda module, args: self.running.append((name, []))

    def _end(self, layer: nn.Module, args: Any, output: Any) -> None:
        name, maps = self.running.pop()
        plan, row = self.plan, (name, self.calls[name])
        self.calls[name] += 1
        layout = self.layout or plan.layout(name, output)
        x, layout = find_tokens(name, layer, output, layout, plan.size, plan.graph)
        x = x.detach()
        if not x.numel():
            raise InputError(f"{name}: returns {tuple(x.shape)}; the batch is empty, give samples")
        samples = plan.samples(name, layer, x, layout)
        if sum(self.calls.values()) == 1:
            self._count(samples, x, layout)
        for what in samples.left_out():
            self.left_out.setdefault(what, set()).add(row)
        bound = min(max(samples.sizes(x)), x.shape[-1])
        self.bounds[row] = max(bound, self.bounds.get(row, 0))
        with without_autocast(x.device):
            found = measure(name, samples.split(x), self.measures)
        if x.dim() == 3:
            fitting = [s for tokens, s in maps if (len(s), tokens) == x.shape[:2]]
            found |= {ATTENTION: _of_samples(fitting[0], samples.parts)} if fitting else {}
        values = self.values.setdefault(row, {})
        for measured, numbers in found.items():
            values.setdefault(measured, []).append(numbers)

    def _count(self, samples: Sequences | Graphs, x: Tensor, layout: str) -> None:
        """Counts the samples and edges of a call, in its first layer."""
        self.sizes += samples.sizes(x)
        self.inputs += self.plan.inputs(x.shape[0], layout)
        self.isolated += samples.isolated
        self.one_way += samples.one_way
        self.repeated += samples.repeated
        self.weighted |= self.plan.weighted
        self.unit = samples.unit

    def _see(self, batch: int, tokens: int, rows: Rows) -> None:
        """Measures the first map of every layer that is running."""
        for name, seen in self.running:
            if not seen:
                keep = self.plan.padding.keep(name, self.layers[name], (batch, tokens))
                if keep is None or keep.shape == (batch, tokens):
                    seen.append((tokens, map_similarity(batch, tokens, rows, keep)))


def _of_samples(similarity: Tensor, parts: int) -> Tensor:
    """Returns the mean over the parts of every sample. Shapes: (B·parts,) -> (B,)."""
    return similarity.cpu().unflatten(0, (-1, parts)).mean(dim=1)
