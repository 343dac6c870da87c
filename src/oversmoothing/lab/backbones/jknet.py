"""Jumping knowledge networks (Xu et al., ICML 2018, arXiv:1806.03536).

A linear layer reads the outputs of all graph convolutions, side by side or their maximum.
"""

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor

from oversmoothing.adapters.sites import Factory
from oversmoothing.checks import check_choice
from oversmoothing.lab.backbones.engine import Inputs, Options
from oversmoothing.lab.backbones.gcn import Convolutions

Jumping = Literal["cat", "max"]


class JKNet(Convolutions):
    """GCNs whose last, linear layer reads the outputs of all graph convolutions.

    Args:
        jumping: ``cat``: the outputs side by side; ``max``: their maximum in each channel.
        aggregators, x, edges, num_classes, seeds, depth, hidden, dropout, adjacency,
            share_aggregators, drop_edge, init, weights: see ``GCN``.

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
        jumping: Jumping = "cat",
        adjacency: Literal["row", "symmetric"] = "row",
        share_aggregators: bool = True,
        drop_edge: float = 0.0,
        init: Literal["uniform", "glorot"] = "uniform",
        weights: Tensor | None = None,
    ) -> None:
        given = Inputs(aggregators, x, edges, num_classes, seeds, weights)
        options = Options(depth, hidden, dropout, adjacency, share_aggregators, drop_edge, init)
        super().__init__(given, options)
        check_choice("backbone.jumping", jumping, get_args(Jumping))
        self.jumping = jumping
        dims = [x.shape[1]] + [hidden] * depth
        width = hidden * depth if jumping == "cat" else hidden
        self.draw(aggregators, [*pairwise(dims)], dense=[(width, num_classes)])

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's output to ``hidden``."""
        self.renew()
        h, outputs = None, []
        for layer in range(self.depth):
            h = self.at("after", layer, self.convolve(h, layer))
            outputs.append(h.relu())
        if hidden is not None:
            hidden += outputs
        joined = torch.cat(outputs, dim=-1) if self.jumping == "cat" else _maximum(outputs)
        return self.dense[0](self.seeds.dropout(joined, self.rate))


def _maximum(outputs: list[Tensor]) -> Tensor:
    return torch.stack(outputs).amax(dim=0)
