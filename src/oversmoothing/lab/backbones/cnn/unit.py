"""The sites for aggregators on convolutional features."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oversmoothing.adapters.sites import Chain, Factory, Sites
from oversmoothing.aggregators.base import Aggregator, Context


class Unit(nn.Module):
    """Aggregation over pixels with a residual connection.

    .. math:: x ← relu(x + BN(W₂ σ(A(W₁ x + b₁))))

    A applies the aggregators: first the one of the site instead, if any, then those of the site
    after. σ is ReLU if the first has ``relu_after``, as in the EMA unit of EMANet (Li et al., ICCV
    2019, Sec. 3.4, and its code). Otherwise σ is the identity, as in the unit of EANet's code (Guo
    et al., TPAMI 2022).

    W₁ and W₂ are 1×1 convolutions, drawn from N(0, 2/C). W₁ and b₁ are frozen if no gradient flows
    through A.

    Args:
        aggregators: in the order in which they act; at most one of the site instead.
        dim: channels C.

    Shapes: x (B, C, H, W) -> (B, C, H, W); the aggregators see (B, H·W, C).
    """

    def __init__(self, aggregators: Sequence[Aggregator], dim: int) -> None:
        super().__init__()
        instead = [a for a in aggregators if a.site == "instead"]
        self.aggregators = Chain(aggregators)
        self.relu = any(a.relu_after for a in instead)
        self.conv1 = nn.Conv2d(dim, dim, kernel_size=1)
        self.conv2 = nn.Conv2d(dim, dim, kernel_size=1, bias=False)
        self.norm = nn.BatchNorm2d(dim)
        for conv in (self.conv1, self.conv2):
            nn.init.normal_(conv.weight, std=(2 / dim) ** 0.5)
        self.conv1.requires_grad_(all(a.passes_gradient for a in instead))

    def forward(self, x: Tensor) -> Tensor:
        B, C, H, W = x.shape
        tokens = self.conv1(x).flatten(2).mT  # (B, H·W, C)
        mixed = self.aggregators(tokens, Context()).mT.unflatten(-1, (H, W))
        if mixed.stride() != x.stride():  # batch norms and sums of different layouts are slow
            mixed = torch.empty_like(x).copy_(mixed)
        mixed = mixed.relu() if self.relu else mixed
        return (x + self.norm(self.conv2(mixed))).relu_()


def unit(factories: list[Factory], dim: int) -> Unit | None:
    """Builds a unit with new instances of the aggregators; returns None if there are none.

    Raises:
        InputError: an aggregator of the site inside, or two of the site instead.
    """
    sites = Sites(factories, dim, "backbone cnn", ("instead", "after"))
    if not sites.has("instead", "after"):
        return None
    return Unit([*sites.build("instead", dim), *sites.build("after", dim)], dim)
