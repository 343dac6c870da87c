"""Graph convolutional networks of any depth (Kipf, Welling, ICLR 2017; ContraNorm's DeepGCN).

.. math:: h ← relu(after(inside(Ã · dropout(h) W, dropout(h) W) + b))

for all layers but the last, whose output is ``inside(…) + b``. Here Ã is the normalised adjacency.
There is no site instead: without the adjacency, the network would not use the graph.
"""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from oversmoothing.adapters.sites import Factory, Sites, kind_of
from oversmoothing.aggregators.base import Aggregator, make
from oversmoothing.backbones.gcn.adjacency import Adjacency, Features
from oversmoothing.backbones.options import check_positive, check_rate
from oversmoothing.backbones.per_seed import PerSeed, Seeds, once
from oversmoothing.errors import InputError


class GCN(nn.Module):
    """The networks of several seeds, trained together; the seeds do not influence each other.

    Args:
        aggregators: factories, applied in their order at their sites.
        x: sparse node features in CSR, (N, F).
        edges: both directions of every edge, (2, E), without the self-loops that GCN adds.
        num_classes: number of outputs.
        seeds: one for each network; seeds its weights and its dropout.
        depth: number of graph convolutions L.
        hidden: channels of all layers but the last.
        dropout: rate before every layer, also for input features.
        residual: interval in layers at which the features of ``residual`` layers before are added;
            0: never.
        adjacency: ``row``: D⁻¹(A + I), whose rows sum to 1; ``symmetric``: D^-½(A + I)D^-½.
        share_aggregators: one instance of each aggregator for all hidden layers, as in
            ContraNorm's code with its LayerNorm; otherwise one for each layer.

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
        dropout: float = 0.6,
        residual: int = 0,
        adjacency: Literal["row", "symmetric"] = "row",
        share_aggregators: bool = True,
    ) -> None:
        super().__init__()
        check_positive(depth=depth, hidden=hidden)
        check_rate("dropout", dropout)
        if residual < 0:
            raise InputError(f"backbone.residual: expected 0 (none) or more layers, got {residual}")
        self.depth, self.residual = depth, residual
        self.features = Features(x, len(seeds))
        self.adjacency = Adjacency(edges, x.shape[0], adjacency)
        self.seeds = Seeds(seeds, x.device)
        self.dropout = dropout
        dims = [x.shape[1]] + [hidden] * (depth - 1) + [num_classes]
        self._build(aggregators, dims, share_aggregators)

    def _build(self, factories: list[Factory], dims: list[int], share: bool) -> None:
        """Draws everything for one seed before the next, so that seeds stay independent."""
        weights, biases, aggregators = [], [], []  # indexed [seed][layer]
        of_layers = _factories(factories, dims[1:], share)
        for _ in self.seeds.seeded():
            weights.append([_uniform(c_out, c_in, c_out) for c_in, c_out in pairwise(dims)])
            biases.append([_uniform(c_out, 1, c_out) for c_out in dims[1:]])
            aggregators.append(_aggregators(of_layers, dims[1:], share))
        device = self.seeds.device
        self.weights = nn.ParameterList(torch.stack(w).to(device) for w in zip(*weights))
        self.biases = nn.ParameterList(torch.stack(b).to(device) for b in zip(*biases))
        self.aggregators = nn.ModuleList(
            nn.ModuleList(PerSeed(copies) for copies in zip(*layer)) for layer in zip(*aggregators)
        ).to(device)

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's output to ``hidden``."""
        h, skipped = None, 0.0
        for layer in range(self.depth):
            h = self._convolve(h, layer)
            if layer < self.depth - 1:
                h = self._at("after", layer, h).relu()
                if self.residual and layer % self.residual == 0:
                    h = skipped = h + skipped
            if hidden is not None:
                hidden.append(h)
        return h

    def _convolve(self, h: Tensor | None, layer: int) -> Tensor:
        rate = self.dropout if self.training else 0.0
        if h is None:
            v = self.features.matmul(self.weights[0], rate, self.seeds)
        else:
            v = self.seeds.dropout(h, rate) @ self.weights[layer]
        return self._at("inside", layer, self.adjacency(v), v) + self.biases[layer]

    def _at(self, site: str, layer: int, x: Tensor, *others: Tensor) -> Tensor:
        for aggregator in self.aggregators[layer]:
            if aggregator.site == site:
                x = aggregator(x, *others, self.adjacency.context)
        return x


def _uniform(c_out: int, *shape: int) -> Tensor:
    """Draws weights or biases from U(±1/√c_out), as in Kipf's and ContraNorm's code."""
    bound = 1 / math.sqrt(c_out)
    return torch.empty(shape).uniform_(-bound, bound)


def _factories(factories: list[Factory], dims: list[int], share: bool) -> list[list[Factory]]:
    """Returns the factories of every layer; the last layer offers only the site inside."""
    Sites(factories, dims[-1], "backbone gcn", ("inside", "after"))  # refuses other sites
    layers = [[once(factory) for factory in factories] for _ in dims]
    layers = layers[:1] * len(dims) if share else layers
    last = [kind_of(factory, dims[-1]).site == "inside" for factory in factories]
    return [*layers[:-1], [factory for factory, inside in zip(layers[-1], last) if inside]]


def _aggregators(
    factories: list[list[Factory]], dims: list[int], share: bool
) -> list[list[Aggregator]]:
    """Builds the aggregators of every layer for one seed."""
    layers: list[list[Aggregator]] = []
    for layer, dim in enumerate(dims):
        shared = share and 0 < layer < len(dims) - 1
        layers.append(layers[0] if shared else [make(f, dim) for f in factories[layer]])
    return layers
