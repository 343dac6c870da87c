"""GCNII: initial residual and identity map (Chen et al., ICML 2020, arXiv:2007.02133, Eq. 5).

.. math:: h ← relu(after(((1 − α) Ãh + α h_0) ((1 − β_l) I + β_l W_l))), \\quad β_l = \\log(λ/l + 1)

where h_0 = relu(x W + b), with dropout before every product with weights. Aggregators inside act
on Ãh, with the values h.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from oversmoothing.adapters.sites import Factory
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.engine import Engine, Inputs, Options


class GCNII(Engine):
    """GCNII networks of several seeds.

    Args:
        alpha: α, the share of h_0 in every layer, 0 to 1.
        lam: λ, above 0, which sets the weight of W_l relative to the identity. Tensors (S, 1, 1)
            have one α or λ for each network.
        aggregators, x, edges, num_classes, seeds, depth, hidden, dropout, adjacency,
            share_aggregators, drop_edge, init, weights: see ``GCN``. The linear layers before and
            after the convolutions do not count in ``depth``; convolutions have no bias.

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
        alpha: float | Tensor = 0.1,
        lam: float | Tensor = 0.5,
        adjacency: Literal["row", "symmetric"] = "row",
        share_aggregators: bool = True,
        drop_edge: float = 0.0,
        init: Literal["uniform", "glorot"] = "uniform",
        weights: Tensor | None = None,
    ) -> None:
        given = Inputs(aggregators, x, edges, num_classes, seeds, weights)
        options = Options(depth, hidden, dropout, adjacency, share_aggregators, drop_edge, init)
        super().__init__(given, options)
        shares = torch.as_tensor(alpha, dtype=torch.float64)
        if not ((shares >= 0) & (shares <= 1)).all():
            raise InputError(f"backbone.alpha: expected 0 to 1, got {alpha}")
        if not torch.all(torch.as_tensor(lam) > 0):
            raise InputError(f"backbone.lam: expected a number above 0, got {lam}")
        self.alpha, self.lam = alpha, lam
        dense = [(x.shape[1], hidden), (hidden, num_classes)]
        self.draw(aggregators, [(hidden, hidden)] * depth, dense, bias=False)

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's output to ``hidden``."""
        self.renew()
        first, last = self.dense
        read = self.features.matmul(first.weight, self.rate, self.seeds)
        h = h_0 = (read + first.bias).relu()
        for layer in range(self.depth):
            h = self.at("after", layer, self._convolve(h, h_0, layer)).relu()
            if hidden is not None:
                hidden.append(h)
        return last(self.seeds.dropout(h, self.rate))

    def _convolve(self, h: Tensor, h_0: Tensor, layer: int) -> Tensor:
        beta = self.lam / (layer + 1) + 1
        beta = beta.log() if torch.is_tensor(beta) else math.log(beta)
        v = self.seeds.dropout(h, self.rate)
        mixed = self.at("inside", layer, self.mix(v), v)
        support = (1 - self.alpha) * mixed + self.alpha * h_0
        return (1 - beta) * support + beta * (support @ self.weights[layer])
