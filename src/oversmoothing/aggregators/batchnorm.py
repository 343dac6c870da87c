"""Batch normalisation of each channel over all tokens (Ioffe, Szegedy, ICML 2015)."""

from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import (
    check_counts,
    check_eps,
    number,
    over_batch,
    padding,
)
from oversmoothing.errors import InputError


class BatchNorm(Masked, After):
    """Computes (x − mean) / sqrt(var + eps), then a learned scale and shift per channel.

    Mean and variance of a channel are those of all tokens of the batch in training, on a graph of
    all nodes, and moving averages in evaluation. Every layer has its own.

    Args:
        dim: channels C.
        momentum: share of the present statistics in the moving averages.
        eps: added to the variance.

    Raises:
        InputError: the momentum is not from 0 to 1, eps is negative, or
            a batch has a single token in training.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    can_be_shared = False
    of_batch = True

    def __init__(self, dim: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        check_counts(dim=dim)
        check_eps(eps)
        if not 0 <= number(momentum) <= 1:
            raise InputError(f"aggregator.momentum: expected 0 to 1, got {momentum!r}")
        self.norm = nn.BatchNorm1d(dim, eps=eps, momentum=momentum)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return over_batch(self.norm, x, padding(context))
