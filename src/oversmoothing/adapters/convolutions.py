"""Aggregators before and after graph convolutions, and on their edges."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from oversmoothing.adapters.site import AfterModule, BeforeModule, Site
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

PRODUCTS = ("_cached_x", "_cached_h")  # attributes: products that SGConv and SSGConv keep
OF_EDGES = ("edge_weight", "edge_attr", "edge_type")  # arguments with one entry for each edge
BATCH = ("batch", "batch_index", "batch_idx", "batch_vector")  # names of PyG's vector

_entries: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


class AfterConvolution(AfterModule):
    """Acts on the output of a convolution; its aggregators can read the edges.

    In a bipartite graph only targets have outputs, so only targets can be neighbours. If the first
    sources have the features of the targets, as in batches of ``NeighborLoader``, they are taken to
    be the targets. Otherwise sources are other nodes, and no two targets are neighbours.
    """

    def of_call(self, module: nn.Module, args: tuple, kwargs: dict, num_tokens: int) -> Context:
        given = self.given(args, kwargs)
        edges, x = given.get("edge_index"), given.get("x")
        context = super().of_call(module, args, kwargs, num_tokens)
        context = with_edges(context, self, module, edges, num_tokens)
        if context.edges is None or not isinstance(x, tuple | list):
            return context
        return replace(context, edges=between_targets(context.edges, x, num_tokens))


class BeforeConvolution(BeforeModule):
    """Acts on the nodes that a convolution gets, and notes them for the layers that follow."""

    keeps_call = True

    def connect(self, module: nn.Module) -> None:
        self.handles = [module.register_forward_pre_hook(_before, with_kwargs=True)]


def _before(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    site, x = module.before, args[0] if args else kwargs["x"]
    if not isinstance(x, Tensor):
        raise InputError(
            f"model: {type(module).__name__} gets several inputs (a bipartite graph), which "
            "jumping knowledge cannot combine; give the whole graph"
        )
    context = site.current.record(x, site.context)
    x = site.act(x, context=context) if len(site) else x
    return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "x": x})


class EdgesOfConvolution(Site):
    """Leaves out edges in training, with their weights and features."""

    name = "edges"
    keeps_call = True

    def connect(self, module: nn.Module) -> None:
        self.handles = [module.register_forward_pre_hook(_fewer_edges, with_kwargs=True)]


def _fewer_edges(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    site = module.edges
    if not module.training:
        return args, kwargs
    given = site.given(args, kwargs)
    edges = _plain_edges(module, given)
    apart = _apart(edges, given.get("x"))
    kept = site.current.drawn(edges, lambda: [draw(edges + apart) for draw in site])
    kept = torch.stack(kept).all(dim=0)
    of_edges = {name: given[name] for name in OF_EDGES if given.get(name) is not None}
    given |= {name: value[kept] for name, value in of_edges.items()}
    return (), {**given, "edge_index": edges[:, kept]}


def _plain_edges(module: nn.Module, given: dict[str, Any]) -> Tensor:
    """Returns the edges (2, E) that a convolution gets."""
    edges = given.get("edge_index")
    plain = isinstance(edges, Tensor) and edges.layout == torch.strided
    if not plain or any(getattr(part, "cached", False) for part in module.modules()):
        raise InputError(
            f"model: {type(module).__name__} keeps its graph, or gets no edge_index (2, E), so "
            "methods that drop a part of it cannot act; build it without cached=True, and give "
            "edge_index as a tensor"
        )
    return edges


class MessagesOfConvolution(Site):
    """Acts on the messages of a convolution in training, one for each edge.

    It replaces the method ``message``, since torch-geometric skips hooks under ``torch.compile``.
    """

    name = "messages"

    def connect(self, module: nn.Module) -> None:
        self.handles = [module.register_forward_pre_hook(_require_messages, with_kwargs=True)]
        module.message = partial(_fewer_messages, module)

    def detach(self, module: nn.Module) -> None:
        del module.message
        super().detach(module)


def _require_messages(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Checks that torch-geometric computes messages, and no product in place of them."""
    if not module.training:
        return
    edges = _plain_edges(module, module.messages.given(args, kwargs))
    if hasattr(edges, "is_sorted_by_col"):
        raise InputError(
            f"model: {type(module).__name__} computes no messages that could be dropped with an "
            "EdgeIndex; give edge_index as a tensor"
        )


def _fewer_messages(module: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    messages = type(module).message(module, *args, **kwargs)
    for drop in module.messages if module.training else ():
        messages = drop(messages)
    return messages


class GraphOfModel(Site):
    """Gives a model a graph with more nodes, and returns the outputs of the given ones.

    In a batch of graphs the nodes of each graph follow each other, as torch-geometric needs them.
    """

    name = "graph"

    def connect(self, module: nn.Module) -> None:
        self.handles = [
            module.register_forward_pre_hook(_more_nodes, with_kwargs=True),
            module.register_forward_hook(_given_nodes),
        ]


def _more_nodes(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    site, given = module.graph, module.graph.given(args, kwargs)
    if not isinstance(given.get("x"), Tensor):
        raise InputError(
            f"model: {type(module).__name__} is not called with x (N, C) and edge_index (2, E), so "
            "half_hop cannot act; call it with these, or call oversmoothing.HalfHop on your data"
        )
    N = given["x"].shape[0]  # under torch.jit.trace, len() is a constant
    for upsample in site:
        new = upsample(given["x"], _plain_edges(module, given))
        of_edges = {n: v for n in OF_EDGES if isinstance(v := given.get(n), Tensor)}
        of_nodes = {n: v for n in BATCH if isinstance(v := given.get(n), Tensor)}
        given |= {name: value[new.edges] for name, value in of_edges.items()}
        given |= {name: value[new.nodes] for name, value in of_nodes.items()}
        given |= {"x": new.x, "edge_index": new.edge_index}
    places = torch.arange(N, device=given["x"].device)
    if vectors := [name for name in BATCH if isinstance(given.get(name), Tensor)]:
        order = given[vectors[0]].argsort(stable=True)
        given |= {name: given[name][order] for name in ("x", *vectors)}
        place = order.argsort()
        given["edge_index"], places = place[given["edge_index"]], place[places]
    site.held.set((places, given["x"].shape[0]))
    return (), given


def _given_nodes(module: nn.Module, args: tuple, output: Any) -> Any:
    places, every = module.graph.held.get()
    shape = output.shape if isinstance(output, Tensor) else ()
    axis = max(len(shape) - 2, 0)  # of nodes, in (N,), (N, C) or (…, N, C)
    if every not in shape[axis : axis + 1]:
        got = tuple(shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"model: expected one output for each of {every} nodes, got {got}; slow nodes can only "
            "be taken out of outputs (N,) or (N, C)"
        )
    return output.index_select(axis, places)


def with_edges(
    context: Context, site: Site, conv: nn.Module, edge_index: Any, num_nodes: int
) -> Context:
    """Adds the entries of M, self-loops included, to a context if an aggregator reads them."""
    if not any(aggregator.reads_edges for aggregator in site):
        return context
    if edge_index is None:
        raise InputError(
            f"model: {type(conv).__name__} has no argument edge_index, which the aggregator reads; "
            "choose another aggregator"
        )
    return replace(context, edges=_with_loops(conv, edge_index, num_nodes), num_nodes=num_nodes)


def _with_loops(conv: nn.Module, edge_index: Any, num_nodes: int) -> Tensor:
    """Returns the entries of M and self-loops, the same tensor as long as ``edge_index`` lives.

    So ``neighbours_of``, which keeps its results by tensor, sorts a graph once.
    """
    keeps = isinstance(edge_index, Tensor) and not torch.compiler.is_compiling()
    key: tuple = ()
    if keeps:
        version = 0 if edge_index.is_inference() else edge_index._version
        key = conv.flow, num_nodes, version
        if (known := _entries.get(edge_index)) is not None and known[0] == key:
            return known[1]
    edges = entries_of(conv, edge_index)
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    edges = torch.cat([edges, loops], dim=1)
    if keeps:
        _entries[edge_index] = key, edges
    return edges


def entries_of(conv: nn.Module, edge_index: Any) -> Tensor:
    """Returns row and column of every entry of M: the target and the source of every message."""
    if hasattr(edge_index, "coo"):  # a SparseTensor
        return torch.stack(edge_index.coo()[:2])
    if edge_index.layout != torch.strided:
        return edge_index.to_sparse_coo().coalesce().indices()
    return edge_index.flip(0) if conv.flow == "source_to_target" else edge_index


def between_targets(edges: Tensor, x: Sequence[Tensor | None], num_targets: int) -> Tensor:
    """Selects the entries of a bipartite graph that join two targets; self-loops stay.

    Args:
        edges: all entries.
        x: features of sources and targets; without those of targets, they are the first
            sources.
        num_targets: number of targets.
    """
    inside = edges[1] < num_targets if _targets_first(*x) else edges[0] == edges[1]
    return edges[:, inside]


def _targets_first(sources: Tensor, targets: Tensor | None) -> bool:
    """Whether the first sources have the features of the targets, and so are the targets."""
    return targets is None or torch.equal(sources[..., : targets.shape[-2], :], targets)


def _apart(edges: Tensor, x: Any) -> Tensor:
    """Returns what numbers sources and targets apart if they are other nodes, else 0, (2, 1).

    So that an edge from a node to that of the same number is no self-loop.
    """
    other = isinstance(x, tuple | list) and not _targets_first(*x)
    return edges.new_tensor([[0], [max(own.shape[-2] for own in x) if other else 0]])


def forget_product(conv: nn.Module) -> None:
    """Clears the product of M and V that a convolution keeps with ``cached=True``."""
    for name in PRODUCTS:
        if hasattr(conv, name):
            setattr(conv, name, None)


def require_lasting(conv: nn.Module, site: Site) -> None:
    """Checks that no aggregator changes after the first call, whose product a convolution keeps."""
    keeps = getattr(conv, "cached", False) and any(hasattr(conv, name) for name in PRODUCTS)
    for aggregator in site if keeps else ():
        if not aggregator.steady or any(True for _ in aggregator.parameters()):
            raise InputError(
                f"model: {type(conv).__name__} keeps the product of its first call (cached=True), "
                f"so {type(aggregator).__name__}, which changes in training, would act in that "
                "call only; build it without cached=True"
            )
