"""Splits the tokens of a call into samples: words without padding, patches, nodes of graphs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.prefix import parents_of, prefix_of
from oversmoothing.diagnosis.calls import Call
from oversmoothing.diagnosis.padding import Padding
from oversmoothing.diagnosis.samples import Graphs, Sequences
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Options:
    """Properties of the inputs given by the user; None: taken from the model and its inputs.

    Args:
        edges: edges of a graph, (2, E).
        mask: true for tokens, false for padding, (B, N).
        batch: index of the graph of every node, (N,).
        prefix: number of leading tokens to leave out, such as 1 for a class token.
    """

    edges: Tensor | None = None
    mask: Tensor | None = None
    batch: Tensor | None = None
    prefix: int | None = None


class Plan:
    """How the tokens of one call are split into samples.

    Args:
        model: the model.
        call: the arguments of the call.
        options: given by the user.
    """

    def __init__(self, model: nn.Module, call: Call, options: Options) -> None:
        self.model, self.call, self.options = model, call, options
        self.edges = _pairs(_or(options.edges, call.tensor("edge_index")))
        self.batch = options.batch
        if self.batch is None and self.edges is not None:
            self.batch = call.tensor("batch")
        self.graph = self.edges is not None or self.batch is not None
        if self.graph and (options.mask is not None or options.prefix):
            option = "prefix" if options.mask is None else "mask"
            raise InputError(f"{option}: nodes of a graph are all measured; leave it out")
        self.size = _size(call)
        self.padding = Padding(model, options.mask)
        self._graphs: Graphs | None = None

    def samples(self, name: str, layer: nn.Module, x: Tensor) -> Sequences | Graphs:
        """Returns how the tokens of a layer are split. Shapes: x (B, N, C) or (N, C)."""
        if self.graph or x.dim() == 2:
            if self._graphs is None:
                batch, edges = (_on(x.device, y) for y in (self.batch, self.edges))
                self._graphs = Graphs(x.shape[-2], batch, edges)
            found: Sequences | Graphs = self._graphs
        else:
            keep = self.padding.keep(name, layer, x.shape[:2])
            found = Sequences(self._prefix(name, x.shape[1]), _on(x.device, keep))
        found.check(name, x)
        return found

    def layout(self, name: str, output: Any) -> str | None:
        """Returns BHWC if a layer returns a feature map in a timm model that says so; else None."""
        around = parents_of(self.model, name).values()
        last = any(getattr(module, "output_fmt", None) == "NHWC" for module in around)
        return "BHWC" if last and isinstance(output, Tensor) and output.dim() == 4 else None

    def _prefix(self, name: str, tokens: int) -> int:
        prefix = self.options.prefix
        if prefix is None:
            prefix = prefix_of(self.model, name)
        elif isinstance(prefix, bool) or not isinstance(prefix, int) or not 0 <= prefix < tokens:
            raise InputError(
                f"prefix: expected 0 to {tokens - 1}, below the tokens of {name}, got {prefix!r}"
            )
        return prefix


def _size(call: Call) -> int | None:
    tensors = (x for x in (*call.args, *call.kwargs.values()) if isinstance(x, Tensor))
    return next((x.shape[0] for x in tensors if x.dim() > 1), None)


def _or(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return second if first is None else first


def _pairs(edges: Tensor | None) -> Tensor | None:
    """Returns the edges of a sparse adjacency matrix, whose rows are the targets, as (2, E)."""
    if edges is None or edges.layout == torch.strided:
        return edges
    return edges.to_sparse_coo().coalesce().indices().flip(0)


def _on(device: torch.device, x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to(device)
