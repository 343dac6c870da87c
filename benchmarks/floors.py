"""Times only the matrix products of graph networks, as a lower bound of a training step."""

from collections.abc import Sequence

import torch
from measure import median_ratio
from torch import Tensor

from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.lab.backbones.engine import times
from oversmoothing.lab.backbones.gcn import GCN


def note(ours: Sequence[float], products: Sequence[float], theirs: Sequence[float]) -> str:
    """Describes the share of the products in our time, and the ratio with the products alone."""
    share, ratio = median_ratio(products, ours), median_ratio(theirs, products)
    return f"matrix products take {share:.0%} of our time; alone they would give {ratio:.3g}×"


class Products:
    """The products of a step of a GCN, forward and backward."""

    def __init__(self, net: GCN) -> None:
        self.net = net
        self.contrasts = any(isinstance(module, ContraNorm) for module in net.modules())

    def epoch(self) -> None:
        net = self.net
        h = net.adjacency(net.features.matmul(net.weights[0], None, net.seeds))
        for weight in net.weights[1:]:
            if self.contrasts:
                contrast(h.detach(), net.adjacency.context.neighbours.tiles[-1])
            h = net.adjacency(times(h, weight))
        h.backward(torch.ones_like(h))


def contrast(x: Tensor, tile: int) -> None:
    """Computes the products of ContraNorm by tiles, forward and backward: 5 N²C per seed.

    Both passes compute similarities; the similarity of a pair is used for both of its nodes.

    Shapes: x (S, N, C).
    """
    for of_seed in x:
        tiles = of_seed.split(tile)
        for i, rows in enumerate(tiles):
            for columns in tiles[i:]:
                E = rows @ columns.mT
                both = [(E, columns), (E.mT, rows)][: 1 + (columns is not rows)]
                for a, b in both:
                    torch.mm(a, b)  # forward
                E = torch.mm(rows, columns.mT, out=E)
                dE = torch.cat([rows, rows], dim=1) @ torch.cat([columns, columns], dim=1).mT
                for matrix in (E, dE):
                    torch.mm(matrix, columns)
                    if columns is not rows:
                        torch.mm(matrix.mT, rows)
