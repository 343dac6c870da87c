"""Heterogeneous graphs of torch-geometric: nodes of several types, and layers that split by type.

``HeteroConv``, ``HGTConv`` and the like return a dictionary of nodes (N, C) by type. ``to_hetero``
makes one convolution of every type of edges, and merges their outputs for each type of nodes
outside of modules, for example by a sum.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from oversmoothing.adapters.prefix import parents_of
from oversmoothing.diagnosis.calls import Call
from oversmoothing.errors import InputError

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


def nodes_of(
    kind: str, edges: Relations, call: Call, batch: Mapping[str, Tensor] | None = None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Returns the graph of every node of a type, the edges among them, and their weights.

    Each of the three is None if it is unknown.

    Args:
        batch: the graph of every node by type; None: that of the call.

    Raises:
        InputError: the graphs of other types are known, and those of this one are not.
    """
    inside = [one for one in edges if one[0] == one[2] == kind]
    known = call.named | call.data
    batch = known.get("batch_dict", known.get("batch")) if batch is None else batch
    if isinstance(batch, Mapping) and kind not in batch:
        raise InputError(
            f"batch: has {', '.join(batch)}, and no graphs of the nodes of type {kind}; give a "
            "vector for each type"
        )
    of_kind = batch[kind] if isinstance(batch, Mapping) else None
    if not inside:
        return of_kind, None, None
    weights = known.get("edge_weight_dict")
    weights = weights if isinstance(weights, Mapping) else {}
    joined = torch.cat([edges[one] for one in inside], dim=1)
    given = {one: weights[one].flatten() for one in inside if weights.get(one) is not None}
    ones = {one: torch.ones(edges[one].shape[1], device=joined.device) for one in inside}
    weight = torch.cat([*(ones | given).values()]) if given else None
    return of_kind, joined, weight


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
        parts: names of the convolutions, and their places in the traced graph, one for each call.
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        self.parts: dict[str, list[fx.Node]] = {}
        self.kinds: dict[fx.Node, tuple[int, str]] = {}  # the number of the call, and the type
        self.outputs: dict[fx.Node, Tensor] = {}
        for path, traced in parents_of(model, name).items():
            if isinstance(traced, fx.GraphModule):
                self._read(traced.graph, f"{name.removeprefix(path).lstrip('.')}.")
        self.last = {kind: node for node, kind in self.kinds.items()}
        self.ran = Counter[str]()

    def _read(self, graph: fx.Graph, prefix: str) -> None:
        for node in graph.nodes:
            if node.op == "call_module" and node.target.startswith(prefix):
                calls = self.parts.setdefault(node.target.removeprefix(prefix), [])
                self.kinds[node] = len(calls), node.target.rsplit("__", 1)[-1]
                calls.append(node)
            elif node.op == "call_function" and node.target in MERGES:
                kinds = {self.kinds.get(one) for one in node.all_input_nodes}
                if len(kinds) == 1 and (kind := kinds.pop()) is not None:
                    self.kinds[node] = kind

    def add(self, part: str, output: Tensor) -> tuple[str, Tensor] | None:
        """Returns a type of nodes and its merged outputs, once its last convolution has run."""
        calls = self.parts[part]
        node = calls[self.ran[part] % len(calls)]
        self.ran[part] += 1
        self.outputs[node] = output
        kind = self.kinds[node]
        alike = [n for calls in self.parts.values() for n in calls if self.kinds[n] == kind]
        if any(n not in self.outputs for n in alike):
            return None
        value = self._value(self.last[kind])
        for n in alike:
            del self.outputs[n]
        return kind[1], value

    def _value(self, node: fx.Node) -> Any:
        if node in self.outputs:
            return self.outputs[node]
        return node.target(*fx.node.map_arg(node.args, self._value))  # type: ignore[operator]
