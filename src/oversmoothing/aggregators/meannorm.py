"""MeanNorm: subtracts the mean token (Yang et al., 2020, Revisiting Over-smoothing in Deep GCNs,
arXiv:2003.13663).
"""

from torch import Tensor

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import mean_of_tokens, padding


class MeanNorm(Masked, After):
    """Computes x − x̄, with the mean x̄ over all tokens of a sample, or nodes of a graph.

    Raises:
        InputError: ``context`` is causal, or its mask differs between tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return x - mean_of_tokens(x, padding(context))
