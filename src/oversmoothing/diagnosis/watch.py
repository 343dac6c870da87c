"""Forward hooks that measure the layers of a model: their tokens and their attention maps."""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from oversmoothing.adapters.site import to_tokens
from oversmoothing.diagnosis.calls import has_forward
from oversmoothing.diagnosis.samples import Graphs, Plan, Sequences
from oversmoothing.diagnosis.tokens import find_tokens
from oversmoothing.diagnosis.unchanged import without_autocast
from oversmoothing.errors import InputError, meant
from oversmoothing.metrics import graphs, smoothness
from oversmoothing.metrics.attention import MapSums, attention_gap

Of = Callable[[Any], Any]
OF_TOKENS: dict[str, Of] = {
    measure.__name__: measure
    for measure in (
        smoothness.cosine,
        smoothness.effective_rank,
        smoothness.mean_share,
        smoothness.norm,
        smoothness.stable_rank,
        smoothness.max_norm_ratio,
        smoothness.largest_token_share,
        smoothness.largest_channel_share,
        smoothness.effective_rank_without_outliers,
        smoothness.mean_share_without_outliers,
        smoothness.centered_stable_rank,
        smoothness.rank,
        smoothness.token_variance,
    )
}
OF_EDGES: dict[str, Callable[..., Tensor]] = {
    measure.__name__: measure
    for measure in (
        graphs.dirichlet_energy,
        graphs.mad,
        graphs.rayleigh_quotient,
        graphs.rayleigh_quotient_loops,
    )
}
OF_MAPS = ("attention_similarity", "attention_entropy", "attention_sink", "attention_gap")
BESIDE = "attention_cosine"  # of the map of a layer and that of the layer before
OF_SAMPLES: dict[str, Callable[[smoothness.Samples], Tensor]] = {
    "sample_cosine": smoothness.Samples.cosine,
    "rankme": smoothness.Samples.rank,
}
OF_GRADIENT: dict[str, Of] = {
    f"gradient_{name}": OF_TOKENS[name] for name in ("norm", "cosine", "effective_rank")
}
MEASURES = (*OF_TOKENS, *OF_EDGES, *OF_MAPS, BESIDE, *OF_SAMPLES, *OF_GRADIENT)
ON_REQUEST = {"centered_stable_rank", "rank", "token_variance", "attention_gap"}  # slow, or alike
DEFAULT = tuple(name for name in MEASURES if name not in ON_REQUEST)
SAMPLES = 8  # number of samples from which on measures across them are shown by default
Pieces = Iterable[tuple[smoothness.Tokens, Any]]
Metrics = str | Of | Iterable[str | Of] | None
FUSED = F.scaled_dot_product_attention
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
OF_TORCH = F.multi_head_attention_forward
WATCHED = {FUSED, OF_TORCH, *SOFTMAX}
Rows = Callable[[int, Tensor], Iterator[Tensor]]  # some rows of a sample's map, (heads, n, N)
ROWS = 16  # smallest number of rows of a piece, and largest one of the rows of a map that are kept
KEPT = 1 << 14  # largest number of entries of the rows of a map that are kept by layer
Seen = tuple[int, int, dict[str, Tensor]]  # samples B and tokens N of maps, and their measures
Row = tuple[str, int]  # the name of a layer, and the number of its call from 0


class OwnMeasure(str):
    """The name of a function of the user, and the function: tokens (b, n, C) -> (b,) or ()."""

    function: Of

    @classmethod
    def of(cls, function: Of) -> "OwnMeasure":
        """Names a function by its ``__name__``, or else by its class."""
        own = cls(getattr(function, "__name__", type(function).__name__))
        own.function = function
        return own

    def __call__(self, t: smoothness.Tokens) -> Tensor:
        """Measures samples. Raises InputError unless there is one number for each."""
        if t.keep is not None:
            return torch.cat([self._of(x[keep][None]) for x, keep in zip(t.x, t.keep)])
        return self._of(t.x)

    def _of(self, x: Tensor) -> Tensor:
        found: Any = torch.as_tensor(value) if _is_number(value := self.function(x)) else value
        if isinstance(found, Tensor) and found.dim() == 0 and x.dim() == 3:
            return torch.stack([found] if len(x) == 1 else [self._of(y[None])[0] for y in x])
        if not isinstance(found, Tensor) or found.shape != x.shape[:1]:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"metrics: {self} returns {got} for tokens {tuple(x.shape)}; return one number "
                f"for each sample, a tensor {tuple(x.shape[:1])}"
            )
        return found.double()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def chosen_measures(metrics: Metrics) -> tuple[str, ...]:
    """Returns the names of the measures; None chooses all.

    Raises:
        InputError: an unknown name, something else, or two measures of one name.
    """
    if metrics is None:
        return DEFAULT
    single = isinstance(metrics, str) or not isinstance(metrics, Iterable)
    listed: tuple[Any, ...] = (metrics,) if single else tuple(metrics)  # type: ignore[arg-type]
    names = {function: name for name, function in (OF_TOKENS | OF_EDGES).items()}
    wanted = tuple(names.get(one, one) if callable(one) else one for one in listed)
    for one in wanted:
        if not callable(one) and one not in MEASURES:
            way = meant(one, MEASURES) if isinstance(one, str) else "give names or functions"
            raise InputError(f"metrics: unknown {one!r}; {way}")
    if not wanted:
        raise InputError(f"metrics: got an empty list; expected some of {', '.join(MEASURES)}")
    own = [OwnMeasure.of(one) for one in wanted if callable(one)]
    if twice := [n for i, n in enumerate(own) if n in (*MEASURES, *own[:i])]:
        raise InputError(f"metrics: two are named {twice[0]}; give the function another __name__")
    return (*(name for name in MEASURES if name in wanted), *own)


def measure(name: str, pieces: Pieces, measures: Mapping[str, Of]) -> dict[str, list[Tensor]]:
    """Measures the samples of a layer.

    Args:
        name: of the layer, for error messages.
        pieces: tokens of one or more samples, and the edges of a graph with their weights or None.
        measures: by name; those of edges are skipped if there are none.

    Returns:
        One value per sample for every measure, float64 on the CPU, in parts.

    Raises:
        InputError: tokens are not finite.
    """
    found: dict[str, list[Tensor]] = {m: [] for m in measures if m not in OF_EDGES}
    for tokens, edges in pieces:
        if not tokens.size.isfinite().all():
            raise InputError(
                f"{name}: returns values that are not finite, as the first layer that does; look "
                "at the inputs and the weights, and run the model in float32 or bfloat16"
            )
        for measured, function in measures.items():
            if measured not in OF_EDGES:
                found[measured].append(function(tokens).cpu())
            elif edges is not None:
                found.setdefault(measured, []).append(function(tokens, *edges).cpu())
    return found


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
        if func not in WATCHED:
            return func(*args, **kwargs)
        if func is FUSED:
            self._fused(*args, **kwargs)
        elif func is OF_TORCH:
            self._of_torch(inspect.signature(func).bind(*args, **kwargs).arguments)
        result = func(*args, **kwargs)
        if func in SOFTMAX and result.dim() == 4 and result.shape[-1] - result.shape[-2] in (0, 1):
            A = result[..., : result.shape[-2]]  # without a sink, a column of its own (gpt-oss)
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
        with without_autocast(x.device):
            self.seen(batch, tokens, rows)


def of_maps(
    batch: int, tokens: int, rows: Rows, keep: Tensor | None, measures: Collection[str]
) -> dict[str, Tensor]:
    """Measures the maps of a call, one value per sample, and keeps some rows of the first one.

    Args:
        batch, tokens, rows: as passed by ``SeeMaps``.
        keep: true for rows that are not padding, (B, N); None: all.
    """
    if not tokens:
        raise InputError("inputs: the samples have no tokens; give samples with at least one")
    found: dict[str, list[Tensor]] = {name: [] for name in OF_MAPS if name in measures}
    kept: list[Tensor] = []
    for b in range(batch):
        which = torch.arange(tokens) if keep is None else keep[b].nonzero()[:, 0]
        sums = MapSums(_keeping(rows(b, which), len(which), kept)).measures()
        if "attention_gap" in found:
            sums["attention_gap"] = attention_gap(torch.cat([*rows(b, which)], dim=-2)[None])[0]
        for name, values in found.items():
            values.append(sums[name])
    measured = {name: torch.stack(values) for name, values in found.items()}
    return measured | ({BESIDE: kept[0]} if BESIDE in measures else {})


def _keeping(pieces: Iterator[Tensor], n: int, kept: list[Tensor]) -> Iterator[Tensor]:
    """Yields the pieces (heads, ≤ n, N) of a map, and keeps a few of its n rows, evenly spaced."""
    start, rows = 0, []
    for piece in pieces:
        width = piece.shape[0] * piece.shape[2]
        few = max(1, min(ROWS, KEPT // width))
        if not kept:
            places = [round(i * (n - 1) / max(1, few - 1)) - start for i in range(few)]
            inside = [place for place in places if 0 <= place < piece.shape[1]]
            rows.append(piece[:, inside].float().cpu())
        start += piece.shape[1]
        yield piece
    if rows:
        kept.append(torch.cat(rows, dim=1))


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
    groups, every = q.shape[0] // k.shape[0], len(rows) == q.shape[1]
    k = k.repeat_interleave(groups, dim=0) if groups > 1 else k
    for i in _few(rows.to(q.device), q.shape[0] * k.shape[1]):
        some = q[:, i[0] : i[-1] + 1] if every else q[:, i]  # a copy takes time
        scores = (some * scale) @ k.mT
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
    return rows.split(max(ROWS, 2 * smoothness.AT_ONCE // size))  # in float32


class Watch:
    """Measures the outputs of layers in hooks, and keeps numbers only.

    Args:
        layers: by name.
        measures: names.
        layout: of the outputs; None: inferred if it is unambiguous.
        loss: of the model's output, a number, for the measures of gradients; None: without.

    Attributes:
        values: one value per sample for every call of a layer, in their order, and every measure.
        sizes: the number of tokens of every sample, in the first layer.
        inputs: the number of inputs of the model, as far as it is known.
        left_out: the rows of ``values`` from which something is left out, by its description.
        isolated: number of nodes without neighbours, in the first layer.
        one_way, repeated: numbers of edges without a reverse, and of edges that are listed before.
        across: the samples of every row of ``values``, for measures across them.
        maps: some rows of the map of the first sample for every row of ``values``, (heads, n, N).
        bounds: the largest possible effective rank of every row of ``values``.
        unit: what the tokens are.
    """

    def __init__(
        self,
        layers: dict[str, nn.Module],
        measures: tuple[str, ...],
        layout: str | None,
        loss: Of | None = None,
    ) -> None:
        self.layers, self.measures, self.layout, self.loss = layers, measures, layout, loss
        own = {str(m): m for m in measures if isinstance(m, OwnMeasure)}
        known: dict[str, Any] = OF_TOKENS | OF_EDGES | own
        self.of_layers = {m: function for m, function in known.items() if m in measures}
        self.across: dict[Row, smoothness.Samples] = {}
        self.maps: dict[Row, Tensor] = {}
        self.values: dict[Row, dict[str, list[Tensor]]] = {}
        self.sizes: list[int] = []
        self.inputs = 0
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
        self.running: list[tuple[str, list[Seen]]] = []  # layers, maps seen in them
        self.outputs: list[tuple[Row, Tensor, str, Sequences | Graphs]] = []  # with gradients
        with ExitStack() as stack:
            for name, layer in self.layers.items():
                stack.callback(layer.register_forward_pre_hook(self._begin(name)).remove)
                stack.callback(layer.register_forward_hook(self._end).remove)
            stack.enter_context(plan.padding.followed(self.layers))
            if {BESIDE, *OF_MAPS} & {*self.measures}:
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
        output, layout = find_tokens(name, layer, output, layout, plan.size, plan.graph)
        x = to_tokens(output.detach(), layout)
        if not x.numel():
            raise InputError(f"{name}: returns {tuple(x.shape)}; no tokens, give some")
        samples = plan.samples(name, layer, x, layout)
        if sum(self.calls.values()) == 1:
            self._count(samples, x, layout)
        for what in samples.left_out():
            self.left_out.setdefault(what, set()).add(row)
        bound = min(max(samples.sizes(x)), x.shape[-1])
        self.bounds[row] = max(bound, self.bounds.get(row, 0))
        if self.loss:
            self.outputs.append((row, output.requires_grad_(), layout, samples))
        with without_autocast(x.device), torch._C.DisableTorchFunction():  # which takes time
            self._measure(row, samples.split(x))
        fitting = [seen for seen in maps if x.dim() == 3 and seen[:2] == (*x.shape[:2],)]
        self._keep_maps(row, fitting[0][2] if fitting else {}, samples.parts)

    def _measure(self, row: Row, pieces: Pieces) -> None:
        across = self.across.setdefault(row, smoothness.Samples())
        if any(name in self.measures for name in OF_SAMPLES):
            pieces = _gathered(pieces, across)
        values = self.values.setdefault(row, {})
        for name, found in measure(row[0], pieces, self.of_layers).items():
            values.setdefault(name, []).extend(found)

    def _keep_maps(self, row: Row, found: dict[str, Tensor], parts: int) -> None:
        """Keeps the numbers of the maps of a layer, and rows of its first one."""
        if BESIDE in found:
            self.maps.setdefault(row, found.pop(BESIDE))
        for name, values in found.items():
            self.values[row].setdefault(name, []).append(_of_samples(values, parts))

    def backward(self, output: Any) -> None:
        """Measures the gradients of the loss after a call, with respect to its layers' outputs."""
        if self.loss is None:
            return
        with torch.enable_grad():
            loss = self.loss(output)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise InputError(f"loss: expected a function that returns one number, got {loss!r:.80}")
        outputs = [x for _, x, _, _ in self.outputs]
        gradients = torch.autograd.grad(loss.sum(), outputs, allow_unused=True)
        for (row, x, layout, samples), gradient in zip(self.outputs, gradients):
            g = to_tokens(torch.zeros_like(x) if gradient is None else gradient, layout)
            with torch.no_grad(), without_autocast(g.device):
                found = measure(f"the gradient at {row[0]}", samples.split(g), OF_GRADIENT)
            for name, values in found.items():
                if name in self.measures:
                    self.values[row].setdefault(name, []).extend(values)

    def _count(self, samples: Sequences | Graphs, x: Tensor, layout: str) -> None:
        """Counts the samples and edges of a call, in its first layer."""
        self.sizes += samples.sizes(x)
        self.inputs += self.plan.inputs(x.shape[0], layout)
        self.isolated += samples.isolated
        self.one_way += samples.one_way
        self.repeated += samples.repeated
        self.unit = samples.unit

    def _see(self, batch: int, tokens: int, rows: Rows) -> None:
        """Measures the first map of every layer that is running."""
        for name, seen in self.running:
            if not seen:
                keep = self.plan.padding.keep(name, self.layers[name], (batch, tokens))
                if keep is None or keep.shape == (batch, tokens):
                    found = of_maps(batch, tokens, rows, keep, self.measures)
                    seen.append((batch, tokens, found))


def _gathered(pieces: Pieces, across: smoothness.Samples) -> Pieces:
    for tokens, edges in pieces:
        across.add(tokens)
        yield tokens, edges


def _of_samples(similarity: Tensor, parts: int) -> Tensor:
    """Returns the mean over the parts of every sample. Shapes: (B·parts,) -> (B,)."""
    return similarity.cpu().unflatten(0, (-1, parts)).mean(dim=1)
