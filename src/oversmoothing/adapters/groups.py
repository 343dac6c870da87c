"""Groups of tokens that aggregators must not mix: sentences with padding, graphs of a batch."""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator, Context
from oversmoothing.errors import InputError


class Groups(Protocol):
    """How to apply an aggregator to every group of tokens of a batch."""

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Applies an aggregator to each group of tensors (..., N, C)."""
        ...


class Sentences:
    """The tokens of sentences with padding.

    Aggregators that read masks get all sentences at once. For others, sentences are grouped by
    length, and each group is aggregated without its padding.

    Args:
        mask: true for tokens, false for padding, which may be anywhere, (B, N).
    """

    def __init__(self, mask: Tensor) -> None:
        mask = mask.bool()
        self.shape, self.lengths = mask.shape, mask.sum(dim=1)
        # Tokens first, padding after them.
        self.mask = torch.arange(mask.shape[1], device=mask.device) < self.lengths[:, None]
        in_order = not recorded() and bool((self.mask == mask).all())
        self.order = None if in_order else (~mask).long().argsort(dim=1, stable=True)

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Applies an aggregator to tensors (B, ..., N, C); padding keeps the values it had.

        Raises:
            InputError: the tensors have other sizes than the mask.
        """
        if (tensors[0].shape[0], tensors[0].shape[-2]) != self.shape:
            raise InputError(
                f"attention_mask: the one of the model's last call is {tuple(self.shape)}, and "
                f"tokens are {tuple(tensors[0].shape)}; it needs one entry for each token, so call "
                "the whole model, not a part of it; if its layers have other tokens than its mask, "
                "give inputs without padding and no mask"
            )
        if self.order is not None:
            tensors = tuple(_take(x, self.order) for x in tensors)
        at_once = all(m.reads_mask for m in aggregator.modules() if isinstance(m, Aggregator))
        out = (self._at_once if at_once else self._by_length)(aggregator, tensors, context)
        return out if self.order is None else _take(out, self.order.argsort(dim=1))

    def _at_once(
        self, aggregator: nn.Module, tensors: tuple[Tensor, ...], context: Context
    ) -> Tensor:
        B, N = self.shape
        first, *values = tensors
        mask = self.mask.view(B, *[1] * (first.dim() - 2), N)
        out = aggregator(first, *values, replace(context, mask=mask))
        return torch.where(mask.mT, out, first.to(out.dtype))

    def _by_length(
        self, aggregator: nn.Module, tensors: tuple[Tensor, ...], context: Context
    ) -> Tensor:
        order = self.lengths.argsort(stable=True)
        found, counts = self.lengths.unique(return_counts=True)
        pieces = []
        for rows, length in zip(order.split(counts.tolist()), found.tolist()):
            parts = [x[rows][..., :length, :] for x in tensors]
            piece = aggregator(*parts, context) if length else parts[0]
            rest = tensors[0][rows][..., length:, :].to(piece.dtype)
            pieces.append(torch.cat([piece, rest], dim=-2))
        return torch.cat(pieces)[order.argsort()]


class Graphs:
    """The nodes of several graphs; graphs with the same number of nodes are aggregated at once.

    Args:
        batch: index of the graph of every node, (N,).
    """

    def __init__(self, batch: Tensor) -> None:
        self.num_nodes = len(batch)
        _, graph, sizes = batch.unique(return_inverse=True, return_counts=True)
        nodes = graph.argsort(stable=True).split(sizes.tolist())
        alike: dict[int, list[Tensor]] = {}
        for own in nodes:
            alike.setdefault(len(own), []).append(own)
        self.nodes = [torch.stack(group) for group in alike.values()]  # (graphs, nodes) each
        self.order = torch.cat([batch.new_empty(0), *map(torch.flatten, self.nodes)]).argsort()

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Applies an aggregator to tensors (..., N, C).

        Raises:
            InputError: the tensors have another number of nodes than the batch.
        """
        if tensors[0].shape[-2] != self.num_nodes:
            raise InputError(
                f"batch: the one of the model's last call has {self.num_nodes} nodes, and tokens "
                f"are {tuple(tensors[0].shape)}; aggregators cannot follow pooling of nodes"
            )
        if not self.nodes:
            return tensors[0]
        pieces = []
        for nodes in self.nodes:
            for some in nodes.split(1) if context.edges is not None else [nodes]:
                of_group = _of_nodes(context, some)
                pieces.append(aggregator(*(x[..., some, :] for x in tensors), of_group))
        found = torch.cat([piece.flatten(-3, -2) for piece in pieces], dim=-2)
        return found[..., self.order, :].to(tensors[0].dtype)


def recorded() -> bool:
    """Returns whether the call is traced, compiled or exported for other inputs, too.

    What a call does must not depend on the values of its inputs then.
    """
    return torch.jit.is_tracing() or torch.compiler.is_compiling()


def _take(x: Tensor, order: Tensor) -> Tensor:
    """Reorders tokens. Shapes: x (B, ..., N, C), order (B, N) -> (B, ..., N, C)."""
    index = order.view(len(order), *[1] * (x.dim() - 3), -1, 1)
    return x.gather(-2, index.expand(x.shape))


def _of_nodes(context: Context, nodes: Tensor) -> Context:
    """Returns the context of some graphs, nodes (graphs, n); with edges, of one graph only."""
    row_sum = None if context.row_sum is None else context.row_sum[..., nodes, :]
    if context.edges is None:
        return replace(context, row_sum=row_sum)
    N = nodes.shape[1]
    new = torch.full((context.num_nodes or 0,), -1, device=nodes.device)
    new[nodes[0]] = torch.arange(N, device=nodes.device)
    edges = new[context.edges]
    edges = edges[:, (edges >= 0).all(dim=0)]
    return replace(context, row_sum=row_sum, edges=edges, num_nodes=N)
