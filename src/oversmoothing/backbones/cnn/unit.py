"""The place of an aggregator behind convolutional features."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator, Context, make, require_sites
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError

SITES = ("instead", "after")


class Unit(nn.Module):
    """Aggregation over pixels with a residual connection.

    .. math:: x ← relu(x + BN(W₂ σ(A(W₁ x + b₁))))

    The EMA unit of EMANet (Li et al., ICCV 2019, Sec. 3.4, as in its code), σ = ReLU, and the unit
    of EANet's code (Guo et al., Beyond Self-Attention), σ = identity: an aggregator says which by
    ``relu_after``. A convolution does not mix pixels on request, so what acts after the mixing
    takes its place in A, behind the one that acts instead, if any; σ comes last.

    W₁ and W₂ are 1×1 convolutions, N(0, 2/C). Where no gradient passes A, W₁ and b₁ are not
    trained.

    Args:
        aggregators: at most one of site instead.
        dim: channels C.

    Raises:
        InputError: two aggregators instead of the mixing.

    Shapes: x (B, C, H, W) -> (B, C, H, W); A sees (B, H·W, C).
    """

    def __init__(self, aggregators: list[Aggregator], dim: int) -> None:
        super().__init__()
        instead = [a for a in aggregators if a.site == "instead"]
        if len(instead) > 1:
            raise InputError(
                "aggregator: one that acts instead of the mixing leaves no mixing to another one "
                "instead of it; drop one of the two"
            )
        after = [a for a in aggregators if a.site == "after"]
        self.aggregators = nn.ModuleList(instead + after)
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
        for aggregator in self.aggregators:
            tokens = aggregator(tokens, Context())
        mixed = tokens.mT.unflatten(-1, (H, W))
        if mixed.stride() != x.stride():  # batch norm and sums of mixed layouts take far longer
            mixed = torch.empty_like(x).copy_(mixed)
        mixed = mixed.relu() if self.relu else mixed
        return (x + self.norm(self.conv2(mixed))).relu_()


def unit(factories: list[Callable[..., Aggregator]], dim: int) -> Unit | None:
    """A unit with a new instance of every aggregator; None where none of them acts.

    Raises:
        InputError: aggregators inside a mixing, which a CNN does not have, or that exclude one
            another.
    """
    built = [make(factory, dim) for factory in factories]
    acting = [a for a in built if not isinstance(a, NoAggregator)]
    require_sites(acting, SITES, "cnn")
    return Unit(acting, dim) if acting else None
