"""DropNode (Feng et al., Graph Random Neural Networks (GRAND), NeurIPS 2020, arXiv:2005.11079).

.. math:: x_i ← \\frac{ε_i}{1 − δ} x_i, \\quad ε_i ∼ \\mathrm{Bernoulli}(1 − δ)

A node passes on all its features or none, so the others learn not to rely on it.
"""

import torch
from torch import Tensor

from oversmoothing.aggregators.base import PLAIN, Context
from oversmoothing.aggregators.drop_edge import Dropping


class DropNode(Dropping):
    """Sets all features of random nodes to 0 in training, before a graph convolution mixes them.

    The others are divided by 1 − δ, so the mean over draws is the plain network's input. The paper
    drops input features alone (``blocks=[0]``); by default every convolution draws its own nodes.

    Args:
        rate: δ, the share of the nodes.

    Raises:
        InputError: the rate is not at least 0 and below 1.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    site = "before"

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__(rate)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        if not self.training:
            return x
        kept = torch.rand(*x.shape[:-1], 1, device=x.device) >= self.rate
        return x * kept.to(x.dtype) / (1 - self.rate)
