"""Samples of one call: images, sentences without padding, graphs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from oversmoothing.checks import check_edges
from oversmoothing.errors import InputError
from oversmoothing.metrics.smoothness import Tokens

Edges = tuple[Tensor, Tensor | None]  # (2, E), and their weights (E,)
MOST_SORTED = 10_000_000  # edges of a graph that are checked for their reverse, to save memory


class Piece(NamedTuple):
    """Tokens (b, n, C) of one or more samples, and what is known about them.

    Args:
        edges: of the one graph that it is; None: unknown.
        labels: of the tokens, (b, n), negative for those without one; None: unknown.
    """

    tokens: Tokens
    edges: Edges | None = None
    labels: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Sequences:
    """A batch of images or sentences with tokens (B, N, C).

    Args:
        prefix, suffix: numbers of leading and of trailing tokens that are left out.
        parts: number of parts of a sample, such as windows, that follow each other along B.
        keep: true for tokens that are not padding, (B, N); None: all.
        labels: of the tokens, (B, N); None: unknown.
    """

    unit: ClassVar[Literal["tokens"]] = "tokens"
    isolated: ClassVar[int] = 0
    one_way: ClassVar[int] = 0
    repeated: ClassVar[int] = 0
    prefix: int = 0
    suffix: int = 0
    parts: int = 1
    keep: Tensor | None = None
    labels: Tensor | None = None

    def split(self, x: Tensor) -> Iterator[Piece]:
        """Yields the tokens of the samples with two or more. Shapes: x (B, N, C) -> (b, n, C)."""
        x = self._joined(x)
        labels = None if self.labels is None else self._joined(self.labels)
        if self.keep is None:
            yield from [Piece(Tokens(x), None, labels)] * (x.shape[1] > 1)
            return
        keep = self._joined(self.keep)
        several = keep.sum(dim=1) > 1
        x, keep = (x, keep) if several.all() else (x[several], keep[several])
        labels = None if labels is None else labels[several]
        if len(x):
            yield Piece(Tokens(x, None if keep.all() else keep), None, labels)

    def sizes(self, x: Tensor) -> list[int]:
        """Returns the number of tokens of every sample."""
        if self.keep is None:
            B, n = self._joined(x[..., 0]).shape
            return [n] * B
        return self._joined(self.keep).sum(1).tolist()

    def left_out(self) -> list[str]:
        """Describes which tokens are left out."""
        around = ((self.prefix, "prefix"), (self.suffix, "detection"))
        found = [f"{n} {what} token{'s' * (n > 1)}" for n, what in around if n]
        padded = self.keep is not None and not bool(self.keep.all())
        return found + ["padding"] * padded

    def _joined(self, x: Tensor) -> Tensor:
        """Joins the tokens of a sample. Shapes: (B, N, ...) -> (B/parts, parts·n, ...)."""
        x = x[:, self.prefix : max(self.prefix, x.shape[1] - self.suffix)]
        return x.unflatten(0, (-1, self.parts)).flatten(1, 2)

    def check(self, name: str, x: Tensor) -> None:
        """Raises InputError if the mask or the labels do not fit the tokens."""
        for option, value in (("mask", self.keep), ("labels", self.labels)):
            if value is not None and value.shape != x.shape[:2]:
                raise InputError(
                    f"{option}: expected {tuple(x.shape[:2])}, the samples and tokens of {name}, "
                    f"got {tuple(value.shape)}; give {option}= with one entry for every token"
                )


class Graphs:
    """A batch of graphs with nodes (N, C).

    Args:
        num_nodes: N.
        batch: the graph of every node, (N,); None: one graph.
        edges: (2, E), both directions of every edge; None: unknown.
        weight: of the edges, (E,); None: 1.
        labels: of the nodes, (N,); None: unknown.

    Attributes:
        isolated: number of nodes without neighbours in graphs of several nodes, 0 if the edges are
            unknown.
        one_way, repeated: numbers of edges whose reverse is missing, and that are listed before; 0
            in a graph of more than ``MOST_SORTED`` edges.

    Raises:
        InputError: the batch vector, the edges or the labels do not fit the nodes.
    """

    unit: ClassVar[Literal["nodes"]] = "nodes"
    parts: ClassVar[int] = 1

    def __init__(
        self,
        num_nodes: int,
        batch: Tensor | None,
        edges: Tensor | None,
        weight: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> None:
        self.num_nodes, self.labels = num_nodes, labels
        if labels is not None and labels.shape != (num_nodes,):
            raise InputError(f"labels: expected ({num_nodes},), got {tuple(labels.shape)}")
        self.isolated = self.one_way = self.repeated = 0
        if edges is not None:
            check_edges(edges, num_nodes)
            if edges.shape[1] <= MOST_SORTED:
                self.one_way, self.repeated = _odd(edges, num_nodes)
            alone = torch.ones(num_nodes, dtype=torch.bool, device=edges.device)
            alone[edges[0, edges[0] != edges[1]]] = False
            self.isolated = int(alone.sum())
        self.nodes, self.edges = _by_graph(num_nodes, batch, edges, weight)
        self.single = sum(nodes is not None and len(nodes) == 1 for nodes in self.nodes)
        self.isolated -= self.single if edges is not None else 0

    def split(self, x: Tensor) -> Iterator[Piece]:
        """Yields the nodes of one graph at a time.

        Shapes: x (N, C), or (B, N, C) for B features of the same nodes -> (1, n, C).
        """
        labels = self.labels
        for features in x if x.dim() == 3 else x[None]:
            for nodes, edges in zip(self.nodes, self.edges):
                own = features if nodes is None else features[nodes]
                some = labels if labels is None or nodes is None else labels[nodes]
                if len(own) > 1:
                    yield Piece(Tokens(own[None]), edges, None if some is None else some[None])

    def sizes(self, x: Tensor) -> list[int]:
        """Returns the number of nodes of every graph."""
        sizes = [self.num_nodes if nodes is None else len(nodes) for nodes in self.nodes]
        return sizes * (x.shape[0] if x.dim() == 3 else 1)

    def left_out(self) -> list[str]:
        """Describes which nodes are left out of all measures."""
        graphs = f"{self.single} graph{'s' * (self.single > 1)} of one node"
        return [graphs] * bool(self.single)

    def check(self, name: str, x: Tensor) -> None:
        """Raises InputError if the layer has another number of nodes."""
        if x.shape[-2] != self.num_nodes:
            raise InputError(
                f"layers: {name} returns {x.shape[-2]} nodes for a graph of {self.num_nodes}; "
                "pooled graphs cannot be measured: choose the layers before, layers=…"
            )


def _odd(edges: Tensor, num_nodes: int) -> tuple[int, int]:
    """Returns the number of edges without their reverse, and of edges that are listed before."""
    listed, back = ((start * num_nodes + end).unique() for start, end in (edges, edges.flip(0)))
    one_way = len(listed) - int(torch.isin(listed, back, assume_unique=True).sum())
    return one_way, edges.shape[1] - len(listed)


def _by_graph(
    num_nodes: int, batch: Tensor | None, edges: Tensor | None, weight: Tensor | None
) -> tuple[list[Tensor | None], list[Edges | None]]:
    """Returns the nodes of every graph, and its edges between them, numbered from 0."""
    if batch is None:
        return [None], [None if edges is None else (edges, weight)]
    if batch.shape != (num_nodes,) or batch.is_floating_point():
        raise InputError(
            f"batch: expected the graph of each of {num_nodes} nodes, integers ({num_nodes},), got "
            f"{batch.dtype} {tuple(batch.shape)}; give batch= as torch-geometric's Batch has it"
        )
    _, batch, sizes = batch.unique(return_inverse=True, return_counts=True)
    order = batch.argsort(stable=True)
    nodes = list(order.split(sizes.tolist()))
    if edges is None:
        return nodes, [None] * len(nodes)
    if (batch[edges[0]] != batch[edges[1]]).any():
        raise InputError("edges: some join two graphs of batch; check batch= and edges=")
    starts = sizes.cumsum(0) - sizes
    place = torch.empty_like(order)
    place[order] = torch.arange(num_nodes, device=order.device) - starts[batch[order]]
    of_edge = batch[edges[0]]
    counts = torch.bincount(of_edge, minlength=len(sizes)).tolist()
    order = of_edge.argsort(stable=True)
    weights = [None] * len(counts) if weight is None else weight[order].split(counts)
    return nodes, list(zip(place[edges[:, order]].split(counts, dim=1), weights))
