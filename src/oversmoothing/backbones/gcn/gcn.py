"""Graph convolutional networks of any depth (Kipf, Welling, ICLR 2017; ContraNorm's DeepGCN).

.. math:: h ← relu(after(inside(Ã · dropout(h) W, dropout(h) W) + b))

for all but the last layer, which ends at ``inside(…) + b``.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Aggregator, Inside, make, require_sites
from oversmoothing.backbones.gcn.adjacency import Adjacency, Features
from oversmoothing.backbones.per_seed import PerSeed, Seeds
from oversmoothing.errors import InputError


class GCN(nn.Module):
    """One network a seed, all trained together; a seed's numbers do not depend on its companions.

    Args:
        aggregators: factories, applied in their order at their sites.
        x: sparse CSR node features (N, F).
        edges: (2, E), both directions, without the self-loops that GCN adds.
        num_classes: outputs.
        seeds: each seeds the weights and the dropout of its own network.
        depth: graph convolutions L.
        hidden: channels of all layers but the last.
        dropout: before every layer, input features included.
        residual: add the features of ``residual`` layers before, every so many layers; 0: never.
        adjacency: ``row`` D⁻¹(A + I), rows sum to 1; ``symmetric`` D^-½(A + I)D^-½.
        share_aggregators: one instance of each aggregator for all hidden layers, as the
            ContraNorm code does with its LayerNorm; otherwise one a layer.

    Raises:
        InputError: depth, hidden, dropout or residual out of range, or an aggregator that acts
            instead of the mixing.

    Shapes: ``forward()`` -> logits (S, N, num_classes).
    """

    def __init__(
        self,
        aggregators: list[Callable[..., Aggregator]],
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
        _check(depth, hidden, dropout, residual)
        self.depth, self.residual = depth, residual
        self.features = Features(x, len(seeds))
        self.adjacency = Adjacency(edges, x.shape[0], adjacency)
        self.seeds = Seeds(seeds, x.device)
        self.dropout = dropout
        dims = [x.shape[1]] + [hidden] * (depth - 1) + [num_classes]
        self._build(aggregators, dims, share_aggregators)

    def _build(self, factories: list, dims: list[int], share: bool) -> None:
        """Draws everything of one seed before the next, so that seeds stay independent."""
        weights, biases, aggregators = [], [], []  # indexed [seed][layer]
        for _ in self.seeds.seeded():
            weights.append([_uniform(c_out, c_in, c_out) for c_in, c_out in pairwise(dims)])
            biases.append([_uniform(c_out, 1, c_out) for c_out in dims[1:]])
            aggregators.append(_aggregators(factories, dims[1:], share))
        device = self.seeds.device
        self.weights = nn.ParameterList(torch.stack(w).to(device) for w in zip(*weights))
        self.biases = nn.ParameterList(torch.stack(b).to(device) for b in zip(*biases))
        self.aggregators = nn.ModuleList(
            nn.ModuleList(PerSeed(list(copies)) for copies in zip(*layer))
            for layer in zip(*aggregators)
        ).to(device)

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Logits (S, N, num_classes); appends each layer's output to ``hidden`` when given."""
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
    """U(±1/√out), for weights and biases alike, as in Kipf's and the ContraNorm code."""
    bound = 1 / math.sqrt(c_out)
    return torch.empty(shape).uniform_(-bound, bound)


def _aggregators(factories: list, dims: list[int], share: bool) -> list[list[Aggregator]]:
    """The aggregators of every layer; the last one offers only the site ``inside``."""
    *hidden, last = dims
    if share and hidden:
        layers = [[make(factory, hidden[0]) for factory in factories]] * len(hidden)
    else:
        layers = [[make(factory, dim) for factory in factories] for dim in hidden]
    final = [make(factory, last) for factory in factories]
    require_sites(final, (Inside.site, After.site), "gcn")
    return [*layers, [aggregator for aggregator in final if aggregator.site == Inside.site]]


def _check(depth: int, hidden: int, dropout: float, residual: int) -> None:
    if depth < 1:
        raise InputError(f"backbone.depth: expected 1 or more graph convolutions, got {depth}")
    if hidden < 1:
        raise InputError(f"backbone.hidden: expected 1 or more channels, got {hidden}")
    if not 0 <= dropout < 1:
        raise InputError(f"backbone.dropout: expected a rate from 0 to below 1, got {dropout}")
    if residual < 0:
        raise InputError(
            f"backbone.residual: expected 0 (none) or a number of layers, got {residual}"
        )
