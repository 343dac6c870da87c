"""Shaped attention (Noci et al., The Shaped Transformer, NeurIPS 2023), here in the form of
He, Hofmann, Simplifying Transformer Blocks, ICLR 2024:

.. math:: (α I + β M − γ 11ᵀ/n) V = α V + β M V − γ 1 v̄ᵀ

Where a token does not see all others, 11ᵀ/n is the uniform attention over those that it sees.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Masked
from oversmoothing.aggregators.checks import check_counts, check_finite
from oversmoothing.aggregators.values import mean_of_seen, own_values, per_head


class ShapedAttention(Masked, Inside):
    """Adds the value of the token itself and takes off the mean, with learned α, β, γ per head.

    The defaults α = 0, β = 1, γ = 0 leave a network as it is. The authors train from scratch with
    α = β = γ = 1 and W_Q = 0: then M = 11ᵀ/n, and the layer starts as the identity on the values.
    The cost is one mean of the values; M is not formed. The results equal those of the authors'
    layer (bobby-he/simplified_transformers, 8d4ea796). Dropout of the attention acts on M here, and
    there on α I + β M − γ 11ᵀ/n.

    Args:
        heads: H; a network gives it. Each head has one α, one β and one γ.
        alpha, beta, gamma: their initial values.

    Raises:
        InputError: ``heads`` is below 1, or a value is not finite.

    Shapes: mixed (..., H, N, C), v (..., H, N, C) -> (..., H, N, C); without H for one head. With
    ``context.mask`` or ``context.causal`` mixed may hold only the last N_q tokens.
    """

    can_be_causal = True
    row_sum = False  # a graph convolution need not compute Context.row_sum

    def __init__(
        self, heads: int = 1, alpha: float = 0.0, beta: float = 1.0, gamma: float = 0.0
    ) -> None:
        super().__init__()
        check_counts(heads=heads)
        for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma)):
            check_finite(name, value)
        self.alpha, self.beta, self.gamma = (
            nn.Parameter(torch.full((heads,), float(value))) for value in (alpha, beta, gamma)
        )

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        own = own_values(v, mixed.shape[-2], context)
        mean = mean_of_seen(v, mixed.shape[-2], context)
        alpha, beta, gamma = per_head(self.alpha), per_head(self.beta), per_head(self.gamma)
        return alpha * own + beta * mixed - gamma * mean
