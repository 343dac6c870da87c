"""No aggregator: the plain network."""

from torch import Tensor

from oversmoothing.aggregators.base import Context, Inside


class NoAggregator(Inside):
    """Returns ``mixed`` unchanged; backbones leave it out where they can."""

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        return mixed
