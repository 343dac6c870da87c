"""The normalised adjacency of a graph, and DropEdge."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.checks import check_choice, check_edges
from oversmoothing.lab.backbones.gcn.sparse import SparseMatrix
from oversmoothing.lab.backbones.per_seed import Seeds

Kind = Literal["row", "symmetric"]


class Adjacency:
    """The normalised adjacency Ã with self-loops, applied to several seeds at once.

    Args:
        edges: row and column of every entry of A, (2, E). A self-loop among them has weight 2 after
            adding I, as in ContraNorm's code.
        num_nodes: N.
        kind: ``row``: D⁻¹(A + I), or ``symmetric``: D^-½(A + I)D^-½.
        weights: of the edges, (E,); None if all are 1.
        seeds: S.

    Attributes:
        context: for aggregators.

    Raises:
        InputError: the kind is unknown, or edges are not pairs of these nodes.

    Shapes: v (S, N, C) -> (S, N, C).
    """

    def __init__(
        self,
        edges: Tensor,
        num_nodes: int,
        kind: Kind,
        weights: Tensor | None = None,
        seeds: int = 1,
    ) -> None:
        check_choice("backbone.adjacency", kind, get_args(Kind))
        check_edges(edges, num_nodes)
        self.num_nodes, self.kind = num_nodes, kind
        self.edges, self.weights = _with_self_loops(edges, num_nodes, weights)
        self.matrix = SparseMatrix(self.edges, (num_nodes, num_nodes), seeds)
        values = _normalised(self.edges, self.weights, num_nodes, kind)
        self.product = self.matrix.prepared(values)
        self.context = self._context(values)

    def __call__(self, v: Tensor) -> Tensor:
        return self.product(v)

    def dropped(self, rate: float, seeds: Seeds) -> "Dropped":
        """Draws a graph with fewer edges for each seed; self-loops stay."""
        kept = seeds.keep((self._pairs[1],), rate) > 0
        loops = self.edges[0] == self.edges[1]
        weights = self.weights * (kept[:, self._pairs[0]] | loops)
        values = [_normalised(self.edges, own, self.num_nodes, self.kind) for own in weights]
        contexts = [self._context(own) for own in values]
        row_sum = torch.stack([context.row_sum for context in contexts])
        product = self.matrix.prepared(torch.stack(values))
        return Dropped(product, replace(self.context, row_sum=row_sum))

    @cached_property
    def _pairs(self) -> tuple[Tensor, int]:
        """Numbers the edges, with one number for both directions: (E,), and their count."""
        low, high = self.edges.min(dim=0).values, self.edges.max(dim=0).values
        edges, number = (low * self.num_nodes + high).unique(return_inverse=True)
        return number, len(edges)

    def _context(self, values: Tensor) -> Context:
        row_sum = values.new_zeros(self.num_nodes).index_add_(0, self.edges[0], values)[:, None]
        return Context(row_sum=row_sum, edges=self.edges, num_nodes=self.num_nodes)


class Dropped(NamedTuple):
    """Adjacencies with fewer edges, one for each seed.

    Args:
        product: multiplies by the matrix of each seed.
        context: for aggregators; ``row_sum`` (S, N, 1) is that of the remaining edges, and
            ``edges`` are those of the whole graph.

    Shapes: v (S, N, C) -> (S, N, C).
    """

    product: Callable[[Tensor], Tensor]
    context: Context

    def __call__(self, v: Tensor) -> Tensor:
        return self.product(v)


def _with_self_loops(
    edges: Tensor, num_nodes: int, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns A + I as edges without duplicates and their weights."""
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    keys = torch.cat([edges, loops], dim=1)
    keys, where = (keys[0] * num_nodes + keys[1]).unique(return_inverse=True)
    given = torch.ones(edges.shape[1], device=edges.device) if weights is None else weights
    every = torch.cat([given, given.new_ones(num_nodes)])
    total = given.new_zeros(keys.shape[0]).index_add_(0, where, every)
    return torch.stack([keys // num_nodes, keys % num_nodes]), total


def _normalised(edges: Tensor, weights: Tensor, num_nodes: int, kind: Kind) -> Tensor:
    """Returns the entries of Ã."""
    rows, columns = edges
    degree = weights.new_zeros(num_nodes).index_add_(0, rows, weights)
    if kind == "row":
        return weights / degree[rows]
    return weights / (degree[rows] * degree[columns]).sqrt()
