"""AttnScale (Wang, Zheng, Chen, Wang, Anti-Oversmoothing in Deep Vision Transformers, ICLR 2022).

.. math:: M' = 11ᵀ/n + (1 + λ)(M − 11ᵀ/n), \\quad M' V = M V + λ (M V − 1 v̄ᵀ)

The uniform attention 11ᵀ/n keeps only the mean of the tokens (a low-pass filter); what M does
beyond it is scaled by 1 + λ. Where a token does not see all others, v̄ is the mean over those that
it sees.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Masked
from oversmoothing.aggregators.checks import check_counts, check_finite
from oversmoothing.aggregators.values import mean_of_seen, per_head


class AttnScale(Masked, Inside):
    """Scales what attention does beyond a mean of all tokens, by 1 + λ with a learned λ per head.

    λ = 0, the start, leaves a network as it is. The cost is a mean of the values; M is not formed.
    The results equal those of the authors' layer (VITA-Group/ViT-Anti-Oversmoothing, 989559f).
    Dropout of the attention acts on M here, and there on M'.

    Args:
        heads: H, the number of heads and of λ; a network gives it.
        start: initial λ.

    Raises:
        InputError: ``heads`` is below 1, or ``start`` is not finite.

    Shapes: mixed (..., H, N, C), v (..., H, N, C) -> (..., H, N, C); without H for one head. With
    ``context.mask`` or ``context.causal`` mixed may hold only the last N_q tokens.
    """

    can_be_causal = True
    row_sum = False  # a graph convolution need not compute Context.row_sum

    def __init__(self, heads: int = 1, start: float = 0.0) -> None:
        super().__init__()
        check_counts(heads=heads)
        check_finite("start", start)
        self.lam = nn.Parameter(torch.full((heads,), float(start)))

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        mean = mean_of_seen(v, mixed.shape[-2], context)
        return mixed + per_head(self.lam) * (mixed - mean)
