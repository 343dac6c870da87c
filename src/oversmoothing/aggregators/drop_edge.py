"""DropEdge (Rong et al., ICLR 2020): every training step leaves out edges of the graph."""

import torch
from torch import Tensor

from oversmoothing.aggregators.base import Tokenwise
from oversmoothing.aggregators.checks import number
from oversmoothing.errors import InputError

_FACTORS = (0x5851F42D4C957F2D, 0x14057B7EF767814F)  # odd, so multiplication loses no bit


class Dropping(Tokenwise):
    """Base of methods that leave out a random part of a graph in training.

    Args:
        rate: share of what is left out.

    Raises:
        InputError: the rate is not at least 0 and below 1.
    """

    draws = True

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= number(rate) < 1:
            raise InputError(f"aggregator.rate: expected at least 0 and below 1, got {rate!r}")
        self.rate = rate


class DropEdge(Dropping):
    """Draws in training which edges to keep, the same ones in all layers. Self-loops stay.

    Here every edge is drawn alone, with both directions, so the graph stays undirected. The
    authors' code draws a fixed number of entries of the adjacency, one direction without the other.

    Args:
        rate: share of the edges that are left out, both directions together.

    Raises:
        InputError: the rate is not at least 0 and below 1.

    Shapes: edge_index (2, E) -> boolean (E,).
    """

    site = "edges"

    def __init__(self, rate: float = 0.3) -> None:
        super().__init__(rate)

    def forward(self, edge_index: Tensor) -> Tensor:
        return drop_edges(edge_index, self.rate if self.training else 0.0)


def drop_edges(edge_index: Tensor, rate: float) -> Tensor:
    """Draws which edges to keep, boolean (E,), with equal results for both directions of an edge.

    Self-loops are always kept. Each pair of nodes is hashed with two random numbers that are the
    same for all pairs. So no search for the reverse direction is needed, and the order of the edges
    does not matter.
    """
    edge_index = edge_index.long()  # the hash needs 64 bits
    low, high = edge_index.amin(dim=0), edge_index.amax(dim=0)
    salts = torch.randint(1 << 62, (2,), device=edge_index.device)
    bits = _scrambled(_scrambled(low ^ salts[0]) ^ high ^ salts[1])
    kept = (bits >> 11 & (1 << 52) - 1).double() * 2.0**-52 >= rate
    return kept | (low == high)


def _scrambled(bits: Tensor) -> Tensor:
    """Hashes 64-bit integers by multiplications, which wrap around, and shifts."""
    for factor in _FACTORS:
        bits = bits * factor
        bits = bits ^ (bits >> 32 & 0xFFFFFFFF)
    return bits
