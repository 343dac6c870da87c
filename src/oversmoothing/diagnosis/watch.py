"""Forward hooks that measure the layers of a model."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from torch import Tensor, nn

from oversmoothing.diagnosis.calls import has_forward
from oversmoothing.diagnosis.maps import Rows, SeeMaps, map_similarity
from oversmoothing.diagnosis.measures import ATTENTION, measure
from oversmoothing.diagnosis.plan import Plan
from oversmoothing.diagnosis.samples import Graphs, Sequences
from oversmoothing.diagnosis.tokens import find_tokens
from oversmoothing.diagnosis.unchanged import without_autocast
from oversmoothing.errors import InputError

Row = tuple[str, int]  # the name of a layer, and the number of its call from 0


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
