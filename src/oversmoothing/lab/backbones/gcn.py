"""Graph convolutional networks of any depth (Kipf, Welling, ICLR 2017; ContraNorm's DeepGCN).

.. math:: h ← relu(after(inside(Ã · dropout(h) W, dropout(h) W) + b))

for all layers but the last, whose output is ``inside(…) + b``. Here Ã is the normalised adjacency.
There is no site instead, since a network without the adjacency would not use the graph.
"""

from itertools import pairwise
from typing import Literal

from torch import Tensor

from oversmoothing.adapters.sites import Factory
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.engine import Engine, Inputs, Options


class Convolutions(Engine):
    """Base class of networks of plain graph convolutions."""

    def convolve(self, h: Tensor | None, layer: int) -> Tensor:
        """Convolves dropout(relu(h)), or the input features if h is None; aggregates inside."""
        if h is None:
            v = self.features.matmul(self.weights[0], self.rate, self.seeds)
        else:
            v = self.times(h, self.weights[layer])
        return self.at("inside", layer, self.mix(v), v) + self.biases[layer]


class GCN(Convolutions):
    """The networks of several seeds, trained together; the seeds do not influence each other.

    Args:
        aggregators: factories, applied in their order at their sites.
        x: node features, dense or CSR, (N, F).
        edges: row and column of every entry of A, (2, E), without the self-loops that GCN adds.
        num_classes: number of outputs.
        seeds: one for each network; seeds its weights and its dropout.
        depth: number of graph convolutions L.
        hidden: channels of all layers but the last.
        dropout: rate before every layer, also for input features. A tensor (S, 1, 1) has one rate
            for each network.
        residual: length of the residual connections in layers: after every ``residual`` layers, the
            features from ``residual`` layers before are added; 0: none.
        adjacency: ``row``: D⁻¹(A + I), whose rows sum to 1; ``symmetric``: D^-½(A + I)D^-½.
        share_aggregators: one instance of each aggregator for all hidden layers, as in
            ContraNorm's code with its LayerNorm; otherwise one for each layer.
        drop_edge: rate at which each training step drops edges of A, both directions together, the
            same in all layers. Ã is normalised anew (DropEdge: Rong et al., ICLR 2020).
        init: initial weights. ``uniform``: U(±1/√c_out), as in ContraNorm's code, which shrinks the
            features in every layer. ``glorot``: U(±√(6/(c_in + c_out))) and biases of 0, as in
            torch-geometric.
        weights: of the edges, (E,); None if all are 1.

    Raises:
        InputError: an option out of range, or an aggregator that acts instead of the mixing.

    Shapes: ``forward()`` -> logits (S, N, num_classes).
    """

    def __init__(
        self,
        aggregators: list[Factory],
        x: Tensor,
        edges: Tensor,
        num_classes: int,
        seeds: list[int],
        depth: int = 2,
        hidden: int = 32,
        dropout: float | Tensor = 0.6,
        residual: int = 0,
        adjacency: Literal["row", "symmetric"] = "row",
        share_aggregators: bool = True,
        drop_edge: float = 0.0,
        init: Literal["uniform", "glorot"] = "uniform",
        weights: Tensor | None = None,
    ) -> None:
        given = Inputs(aggregators, x, edges, num_classes, seeds, weights)
        options = Options(depth, hidden, dropout, adjacency, share_aggregators, drop_edge, init)
        super().__init__(given, options)
        if residual < 0:
            raise InputError(f"backbone.residual: expected 0 (none) or more layers, got {residual}")
        self.residual = residual
        dims = [x.shape[1]] + [hidden] * (depth - 1) + [num_classes]
        self.draw(aggregators, [*pairwise(dims)])

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's output to ``hidden``."""
        self.renew()
        h, skipped = None, 0.0
        for layer in range(self.depth):
            h = self.convolve(h, layer)
            if layer < self.depth - 1:
                h = self.at("after", layer, h)
                if self.residual and layer % self.residual == 0:
                    h = skipped = h.relu() + skipped
            if hidden is not None:
                hidden.append(h.relu() if layer < self.depth - 1 else h)
        return h
