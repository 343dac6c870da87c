"""Heterogeneous graphs of torch-geometric: nodes of several types, and layers that split by type.

``HeteroConv``, ``HGTConv`` and the like return a dictionary of nodes (N, C) by type. ``to_hetero``
makes one convolution of every type of edges, and sums those of a type of nodes outside of modules.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from oversmoothing.adapters.prefix import parents_of
from oversmoothing.diagnosis.calls import Call

Relations = dict[tuple[str, str, str], Tensor]  # (source, name, target) -> edges
MERGES = (torch.add, torch.mul, torch.div, torch.max, torch.min)  # as to_hetero aggregates


def relations(call: Call) -> Relations:
    """Returns the edges of every type that a model gets; none for a graph of one type."""
    for value in (*call.args, *call.kwargs.values(), *call.data.values()):
        if isinstance(value, Mapping) and value and all(map(_is_edges, value, value.values())):
            return dict(value)
    return {}


def _is_edges(kind: Any, edges: Any) -> bool:
    named = isinstance(kind, tuple) and len(kind) == 3
    return named and isinstance(edges, Tensor) and edges.dim() == 2 and len(edges) == 2


def nodes_of(kind: str, edges: Relations, call: Call) -> tuple[Tensor | None, Tensor | None]:
    """Returns the graph of every node of a type, and the edges among them; None: unknown."""
    inside = [e for (source, _, target), e in edges.items() if source == target == kind]
    known = call.named | call.data
    batch = known.get("batch_dict", known.get("batch"))
    batch = batch.get(kind) if isinstance(batch, Mapping) else None
    return batch, torch.cat(inside, dim=1) if inside else None


def by_kind(output: Any) -> dict[str, Tensor]:
    """Returns the nodes of every type that a layer returns."""
    output = output[0] if isinstance(output, tuple) and output else output
    found = output.items() if isinstance(output, Mapping) else ()
    return {str(kind): x for kind, x in found if isinstance(x, Tensor)}


class Merged:
    """The convolutions of one layer of ``to_hetero``, and what becomes of their outputs.

    Args:
        model: with the layer.
        name: of the layer, a ``ModuleDict`` with one convolution for every type of edges.

    Attributes:
        parts: names of the convolutions, and their places in the traced graph.
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        self.parts: dict[str, fx.Node] = {}
        self.kinds: dict[fx.Node, str] = {}
        self.outputs: dict[fx.Node, Tensor] = {}
        for path, traced in parents_of(model, name).items():
            if isinstance(traced, fx.GraphModule):
                self._read(traced.graph, f"{name.removeprefix(path).lstrip('.')}.")
        self.last = {kind: node for node, kind in self.kinds.items()}

    def _read(self, graph: fx.Graph, prefix: str) -> None:
        for node in graph.nodes:
            if node.op == "call_module" and node.target.startswith(prefix):
                self.parts[node.target.removeprefix(prefix)] = node
                self.kinds[node] = node.target.rsplit("__", 1)[-1]
            elif node.op == "call_function" and node.target in MERGES:
                inputs = node.all_input_nodes
                if inputs and all(one in self.kinds for one in inputs):
                    self.kinds[node] = self.kinds[inputs[0]]

    def add(self, part: str, output: Tensor) -> tuple[str, Tensor] | None:
        """Returns the type of nodes and their sum, once its last convolution has run."""
        node = self.parts[part]
        self.outputs[node] = output
        kind = self.kinds[node]
        if any(self.kinds[n] == kind and n not in self.outputs for n in self.parts.values()):
            return None
        return kind, self._value(self.last[kind])

    def _value(self, node: fx.Node) -> Any:
        if node in self.outputs:
            return self.outputs[node]
        return node.target(*fx.node.map_arg(node.args, self._value))  # type: ignore[operator]
