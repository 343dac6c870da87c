"""Samples of one call: images, sentences without padding, packed sequences, graphs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from oversmoothing.checks import check_edges
from oversmoothing.diagnosis.calls import Call
from oversmoothing.errors import InputError
from oversmoothing.metrics.smoothness import Tokens

Edges = tuple[Tensor, Tensor | None]  # (2, E), and their weights (E,)
BOUNDS = ("cu_seq_lens_q", "cu_seqlens")  # arguments with the bounds of sequences, from 0
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


@dataclass(frozen=True, eq=False)
class Packed(Sequences):
    """Rows (B, N, C) of several sequences, each of which is a sample.

    Args:
        prefix: number of leading tokens of every sequence that are left out.
        ids: the sequence of every token, (B, N), on the CPU; negative: padding.
    """

    ids: Tensor = torch.empty(0, 0)

    def rows(self) -> list[tuple[int, Tensor]]:
        """Returns the row of every sequence, and the places of its tokens in it."""
        found = ((b, (ids == one).nonzero()[:, 0]) for b, ids in enumerate(self.ids)
                 for one in ids.unique() if one >= 0)  # fmt: skip
        return [(b, places[self.prefix :]) for b, places in found]

    def split(self, x: Tensor) -> Iterator[Piece]:
        """Yields one sequence of two tokens or more at a time. Shapes: (B, N, C) -> (1, n, C)."""
        for b, places in self.rows():
            if len(places) > 1:
                labels = None if self.labels is None else self.labels[b, places][None]
                yield Piece(Tokens(x[b, places][None]), None, labels)

    def sizes(self, x: Tensor) -> list[int]:
        """Returns the number of tokens of every sequence."""
        return [len(places) for _, places in self.rows()]


def ids_of(segments: Tensor | None, call: Call, B: int, N: int) -> Tensor | None:
    """Returns the sequence of every token of a layer, (B, N); None if rows are not packed.

    Args:
        segments: given by the user, sequences (B, N) or (N,), or their bounds (S + 1,); None: the
            bounds that the model gets, or its position ids, which start anew in each sequence.
    """
    given = (segments, *(call.tensor(name) for name in BOUNDS))
    if (one := next((x for x in given if x is not None), None)) is not None:
        return _ids(one.cpu(), B, N)
    places = call.tensor("position_ids")
    if places is None or places.dim() not in (1, 2) or places.shape[-1] != N:
        return None
    places = torch.atleast_2d(places.cpu())
    starts = places[:, 1:] <= places[:, :-1]
    starts &= (places[:, 1:] > places[:, :-1]).any(dim=1, keepdim=True)  # not all the same
    return torch.nn.functional.pad(starts.cumsum(dim=1), (1, 0)).expand(B, N)


def _ids(segments: Tensor, B: int, N: int) -> Tensor | None:
    """Reads sequences or their bounds; tokens after the last bound are padding, −1."""
    if segments.is_floating_point() or not segments.numel():
        return None
    if segments.dim() > 1 or len(segments) == N and segments[-1] != B * N:
        return segments.expand(B, N) if segments.shape in ((N,), (1, N), (B, N)) else None
    lengths, last = segments.long().diff(), int(segments[-1])
    if segments[0] != 0 or (lengths < 0).any() or not 0 < last <= B * N:
        return None
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)
    ids = torch.nn.functional.pad(ids, (0, B * N - last), value=-1).view(B, N)
    cut = (ids[1:, 0] == ids[:-1, -1]) & (ids[1:, 0] >= 0)  # a sequence that goes on in a new row
    return None if cut.any() else ids


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
    keep: ClassVar[None] = None  # all

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
        if edges is not None:
            self.isolated -= sum(nodes is not None and len(nodes) == 1 for nodes in self.nodes)

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

    def check(self, name: str, x: Tensor) -> None:
        """Raises InputError if the layer has another number of nodes."""
        if x.shape[-2] != self.num_nodes:
            raise InputError(
                f"layers: {name} returns {x.shape[-2]} nodes for a graph of {self.num_nodes}; "
                "pooled graphs cannot be measured: choose the layers before, layers=…"
            )


def _odd(edges: Tensor, num_nodes: int) -> tuple[int, int]:
    """Returns the number of edges without their reverse, and of edges that are listed before."""
    edges = edges.long()  # products leave int32
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
