"""Batch normalisation of each channel over all tokens (Ioffe, Szegedy, ICML 2015)."""

from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import (
    check_counts,
    check_eps,
    check_shares,
    over_batch,
    padding,
)


class BatchNorm(Masked, After):
    """Computes (x − mean) / sqrt(var + eps), then a learned scale and shift per channel.

    In training, mean and variance of a channel are those of all tokens of the batch, or of all
    nodes of a graph. In evaluation they are moving averages. Layers do not share them.

    Args:
        dim: channels C.
        momentum: share of the present statistics in the moving averages.
        eps: added to the variance.

    Raises:
        InputError: dim is below 1, the momentum is not from 0 to 1, eps is negative, a batch has a
            single token in training, ``context`` is causal, or its mask differs between tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    can_be_shared = False
    of_batch = True

    def __init__(self, dim: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        check_counts(dim=dim)
        check_eps(eps)
        check_shares(momentum=momentum)
        self.norm = nn.BatchNorm1d(dim, eps=eps, momentum=momentum)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return over_batch(self.norm, x, padding(context), self.training)
