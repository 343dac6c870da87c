"""No aggregator: the plain network."""

from torch import Tensor

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Masked


class NoAggregator(Masked, Inside):
    """Returns ``mixed`` unchanged; backbones leave it out where they can."""

    adds_mean = True
    can_be_causal = True

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        return mixed
