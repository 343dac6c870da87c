"""FeatScale (Wang, Zheng, Chen, Wang, Anti-Oversmoothing in Deep Vision Transformers, ICLR 2022).

.. math:: x + s ⊙ x̄ + t ⊙ (x − x̄)

The mean x̄ of the tokens and what differs from it are weighted anew in every channel.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import check_counts, mean_of_tokens, padding


class FeatScale(Masked, After):
    """Adds s times the mean of the tokens and t times their difference from it, in each channel.

    The paper uses it on the branch of the attention (``where="branch"`` in timm). s = t = 0, the
    start, leaves a network as it is. The cost is one mean of the tokens. The authors' code
    (VITA-Group/ViT-Anti-Oversmoothing, 989559f) adds the two terms twice, so its parameters are
    s/2 and t/2; with these the results are equal.

    Args:
        dim: channels C.

    Raises:
        InputError: dim is below 1, ``context`` is causal, or its mask differs between tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_counts(dim=dim)
        self.s, self.t = (nn.Parameter(torch.zeros(dim)) for _ in range(2))

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        mean = mean_of_tokens(x, padding(context))
        return x + self.s * mean + self.t * (x - mean)
