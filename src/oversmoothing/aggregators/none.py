"""No aggregator: the mixing as it is."""

from torch import Tensor

from oversmoothing.aggregators.base import Context, Inside


class NoAggregator(Inside):
    """Leaves ``mixed`` untouched: the vanilla network."""

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        return mixed
