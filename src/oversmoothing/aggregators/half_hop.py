"""Half-Hop (Azabou et al., Half-Hop: A graph upsampling approach for slowing down message passing,
ICML 2023).

.. math:: j → i \\quad ⇒ \\quad j → s ⇄ i, \\quad x_s = α x_j + (1 − α) x_i

A slow node s on every edge delays the message from j to i by one layer; i sends messages to s.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from oversmoothing.aggregators.base import Tokenwise
from oversmoothing.aggregators.checks import check_shares


class Upsampled(NamedTuple):
    """A graph with slow nodes, which follow the given ones.

    Args:
        x: features, (N', C).
        edge_index: source and target of every edge, (2, E').
        nodes: for every node the given node that it is, or for a slow node the target of its edge,
            (N',).
        edges: the given edge that every edge comes from, (E',).
    """

    x: Tensor
    edge_index: Tensor
    nodes: Tensor
    edges: Tensor


class HalfHop(Tokenwise):
    """Puts slow nodes on the edges of a graph before the whole model; self-loops stay as they are.

    ``oversmoothing.apply`` takes them out of the model's output. New edges have weights and
    features of the edge that they come from. The results equal those of the authors' transform
    (nerdslab/halfhop, a532b95f).

    Args:
        alpha: α, the share of the source in the features of a slow node.
        share: p, the share of the nodes whose incoming edges get slow nodes. Below 1 they are drawn
            in every training step, and evaluation uses the graph as it is; the authors leave this
            to the user.

    Raises:
        InputError: α or the share is not from 0 to 1.

    Shapes: x (N, C), edge_index (2, E) -> ``Upsampled``.
    """

    site = "graph"

    def __init__(self, alpha: float = 0.5, share: float = 1.0) -> None:
        super().__init__()
        check_shares(alpha=alpha, share=share)
        self.alpha, self.share, self.draws = alpha, share, share < 1

    def forward(self, x: Tensor, edge_index: Tensor) -> Upsampled:
        N, _ = x.shape
        source, target = edge_index
        slowed = source != target
        if self.draws:
            drawn = torch.rand(N, device=x.device) < self.share
            slowed = slowed & drawn[target] & self.training
        (number,), (kept,) = slowed.nonzero(as_tuple=True), (~slowed).nonzero(as_tuple=True)
        source, target = edge_index[:, number]
        slow = N + torch.arange(number.shape[0], device=x.device)
        new = [torch.stack(ends) for ends in ((source, slow), (slow, target), (target, slow))]
        return Upsampled(
            torch.cat([x, self.alpha * x[source] + (1 - self.alpha) * x[target]]),
            torch.cat([edge_index[:, kept], *new], dim=1),
            torch.cat([torch.arange(N, device=x.device), target]),
            torch.cat([kept, number, number, number]),
        )
