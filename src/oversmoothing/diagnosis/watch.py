"""Forward hooks that measure the outputs, maps and gradients of the layers of a model."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import zip_longest
from statistics import fmean
from typing import Any, Literal

import torch
from torch import Tensor, nn

from oversmoothing.adapters.blocks import stacks_beside
from oversmoothing.adapters.site import to_tokens
from oversmoothing.diagnosis.calls import explained, has_forward
from oversmoothing.diagnosis.hetero import Merged, by_kind
from oversmoothing.diagnosis.maps import Rows, SeeMaps, of_maps
from oversmoothing.diagnosis.measures import (
    BESIDE,
    OF_EDGES,
    OF_GRADIENT,
    OF_LABELS,
    OF_MAPS,
    OF_SAMPLES,
    OF_TOKENS,
    Of,
    OwnMeasure,
    Pair,
    Pieces,
    measure,
)
from oversmoothing.diagnosis.plan import Plan
from oversmoothing.diagnosis.samples import Graphs, Packed, Sequences
from oversmoothing.diagnosis.tokens import find_tokens
from oversmoothing.diagnosis.unchanged import without_autocast
from oversmoothing.errors import InputError
from oversmoothing.metrics import smoothness

Seen = tuple[int, int, dict[str, Tensor]]  # samples B and tokens N of maps, and their measures
Row = tuple[str, int]  # the name of a layer, and the number of its call from 0


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
        largest: the largest possible effective rank of each sample, for every row of ``values``.
        images: names of layers that return feature maps.
        sinks: whether a part of the attention goes to no token.
        unit: what the tokens are.
        notes: on norms whose statistics are not known.
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
        known: dict[str, Any] = OF_TOKENS | OF_EDGES | OF_LABELS | own
        self.of_layers = {m: function for m, function in known.items() if m in measures}
        self.across: dict[Row, smoothness.Samples] = {}
        self.maps: dict[Row, Tensor] = {}
        self.values: dict[Row, dict[str, list[Tensor]]] = {}
        self.sizes: list[int] = []
        self.inputs = self.start = 0  # start: of the sizes of this call
        self.isolated = self.one_way = self.repeated = 0
        self.largest: dict[Row, list[int]] = {}
        self.left_out: dict[str, set[Row]] = {}
        self.images: set[str] = set()
        self.sinks = False
        self.notes: list[str] = []
        self.unit: Literal["tokens", "nodes"] = "tokens"

    @contextmanager
    def during(self, plan: Plan) -> Iterator[None]:
        """Context that measures the call of the model in it.

        Raises:
            InputError: no layer was called, or its outputs cannot be measured.
        """
        self.plan = plan
        self.calls: Counter[str] = Counter()
        self.counted = False  # the samples of this call
        self.notes = [*_unfilled(plan.model), *plan.notes]
        self.called: dict[str, None] = {}  # in this call of the model
        self.running: list[tuple[str, list[Seen]]] = []  # layers, maps seen in them
        self.outputs: list[tuple[Row, Tensor, str, Sequences | Graphs]] = []  # with gradients
        with ExitStack() as stack:
            for name, layer in self.layers.items():
                if has_forward(layer):
                    stack.callback(layer.register_forward_pre_hook(self._begin(name)).remove)
                    stack.callback(layer.register_forward_hook(self._end).remove)
                else:
                    self._follow(stack, name, layer)
            stack.enter_context(plan.padding.followed(self.layers))
            maps = SeeMaps(self._see)
            if {BESIDE, *OF_MAPS} & {*self.measures}:
                stack.enter_context(maps)
            yield
        self.sinks |= maps.sinks
        if not self.calls:
            name, layer = next(iter(self.layers.items()))
            parts = [f"{name}.{p}" for p, module in layer.named_children() if has_forward(module)]
            others = [*stacks_beside(plan.model, self.layers), *parts]
            raise InputError(
                f"layers: {name} is not called by the model's forward; choose other layers"
                f"{''.join(f', such as {other}' for other in others[:1])}"
            )

    def bounds(self) -> list[float]:
        """Returns the mean of the largest possible effective ranks, for every row of ``values``.

        Samples of one token count only where there are no others; 0: a row without samples.
        """
        measured = [[n for n in own if n > 1] or own for own in self.largest.values()]
        return [fmean(own) if own else 0.0 for own in measured]

    def _begin(self, name: str) -> Callable[..., None]:
        return lambda module, args: self.running.append((name, []))

    def _follow(self, stack: ExitStack, name: str, layer: nn.Module) -> None:
        """Measures the merged outputs of the convolutions of a layer of ``to_hetero``."""
        merged = Merged(self.plan.model, name)

        def end(part: str, module: nn.Module, args: Any, output: Any) -> None:
            if (found := merged.add(part, output)) is not None:
                self._look(name, module, found[1], kind=found[0])

        for part in merged.parts:
            hook = layer.get_submodule(part).register_forward_hook(partial(end, part))
            stack.callback(hook.remove)

    def _end(self, layer: nn.Module, args: Any, output: Any) -> None:
        name, maps = self.running.pop()
        if self.plan.relations and (kinds := by_kind(output)):
            for kind, x in kinds.items():
                self._look(name, layer, x, kind=kind)
        else:
            self._look(name, layer, output, maps)

    def _look(
        self, name: str, layer: nn.Module, output: Any, maps: Sequence[Seen] = (), kind: str = ""
    ) -> None:
        """Measures what a layer returns, or its nodes of one type."""
        first = not self.called or {*self.called} == {name}
        self.called.setdefault(name)
        shown = f"{name}[{kind}]" if kind else name
        plan, row = self.plan, (shown, self.calls[shown])
        self.calls[shown] += 1
        layout = self.layout or plan.layout(name, output)
        output, layout = find_tokens(name, layer, output, layout, plan.size, plan.graph, plan.flat)
        if self.layout is None:
            plan.require_one_stream(name, layer, output)
        x = plan.tokens(to_tokens(output.detach(), layout))
        if kind and not len(x):  # no nodes of this type in a part of a graph
            self.values.setdefault(row, {})
            self.largest.setdefault(row, [])
            return
        if not x.numel():
            raise InputError(f"{name}: returns {tuple(x.shape)}; no tokens, give some")
        samples = plan.samples(name, layer, x, layout, kind)
        if first and row[1] == 0:
            self._count(samples, x, layout)
        for what in samples.left_out() if isinstance(samples, Sequences) else ():
            self.left_out.setdefault(what, set()).add(row)
        self.largest.setdefault(row, []).extend(min(n, x.shape[-1]) for n in samples.sizes(x))
        if self.loss:
            trains = torch.is_grad_enabled()  # not in no_grad, or in a reentrant checkpoint
            own = output.requires_grad_() if trains else output.detach()
            self.outputs.append((row, own, layout, samples))
        with without_autocast(x.device), torch._C.DisableTorchFunction():  # which takes time
            self._measure(row, samples.split(x))
        if layout in ("BCHW", "BHWC"):
            self.images.add(name)
        for pair in (m for m in self.measures if isinstance(m, Pair)):
            found = _of_samples(pair(name, x, samples.keep), samples.parts)
            self.values[row].setdefault(str(pair), []).append(found)
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
        way = "give a function of what the model returns, such as lambda out: out.loss"
        with torch.enable_grad(), explained("loss: the function", way):
            loss = self.loss(output)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise InputError(f"loss: expected a function that returns one number, got {loss!r:.80}")
        outputs = [x for _, x, _, _ in self.outputs]
        if not loss.requires_grad or not all(x.requires_grad for x in outputs):
            raise InputError(
                "loss: does not depend on the layers, whose outputs the model or the loss cuts off "
                "(detach, no_grad, checkpoint with use_reentrant=True); leave that out"
            )
        with explained("loss: its gradient", "leave loss= out"):  # such as a reentrant checkpoint
            gradients = torch.autograd.grad(loss.sum(), outputs, allow_unused=True)
        for (row, x, layout, samples), gradient in zip(self.outputs, gradients):
            g = torch.zeros_like(x) if gradient is None else gradient
            g = self.plan.tokens(to_tokens(g, layout))
            with torch.no_grad(), without_autocast(g.device):
                found = measure(f"the gradient at {row[0]}", samples.split(g), OF_GRADIENT)
            for name, values in found.items():
                if name in self.measures:
                    self.values[row].setdefault(name, []).extend(values)

    def _count(self, samples: Sequences | Graphs, x: Tensor, layout: str) -> None:
        """Counts the samples and edges of a call, in its first layer."""
        sizes = samples.sizes(x)
        if self.counted:  # nodes of another type
            before, self.sizes = self.sizes[self.start :], self.sizes[: self.start]
            sizes = [sum(of) for of in zip_longest(before, sizes, fillvalue=0)]
        else:
            self.counted, self.start = True, len(self.sizes)
            packed = isinstance(samples, Packed)
            self.inputs += len(sizes) if packed else self.plan.inputs(x.shape[0], layout)
        self.sizes += sizes
        self.notes += self.plan.added(x, samples.unit)
        self.unit = samples.unit
        if isinstance(samples, Graphs):
            self.isolated += samples.isolated
            self.one_way += samples.one_way
            self.repeated += samples.repeated

    def _see(self, batch: int, tokens: int, rows: Rows) -> None:
        """Measures the first map of every layer that is running."""
        for name, seen in self.running:
            samples = [] if seen else self.plan.rows(name, self.layers[name], batch, tokens)
            if samples:
                seen.append((batch, tokens, of_maps(tokens, samples, rows, self.measures)))


def _gathered(pieces: Pieces, across: smoothness.Samples) -> Pieces:
    for piece in pieces:
        across.add(piece.tokens)
        yield piece


def _of_samples(similarity: Tensor, parts: int) -> Tensor:
    """Returns the mean over the parts of every sample. Shapes: (B·parts,) -> (B,)."""
    return similarity.cpu().unflatten(0, (-1, parts)).mean(dim=1)


def _unfilled(model: nn.Module) -> list[str]:
    """Says if norms use statistics in evaluation mode that no batch has filled yet."""
    norms: list[Any] = [
        m for m in model.modules() if isinstance(getattr(m, "running_mean", None), Tensor)
    ]
    known = [m for m in norms if not m.running_mean.is_meta]
    new = [m for m in known if not (m.running_mean.any() or (m.running_var != 1).any())]
    return [
        f"{len(new)} of {len(norms)} norms have seen no batch yet: their running mean is 0 and "
        "their variance 1, so that here they normalise nothing; batches in train() mode fill them."
    ] * bool(new)
