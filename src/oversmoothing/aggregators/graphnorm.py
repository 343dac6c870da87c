"""GraphNorm (Cai et al., ICML 2021, arXiv:2009.03294, Eq. 6): normalisation with learned centering.

.. math:: w \\, \\frac{x − a \\, x̄}{\\sqrt{\\mathrm{mean}((x − a \\, x̄)^2) + eps}} + b

in each channel, with the mean x̄ over all tokens of a sample, or nodes of a graph.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import check_counts, check_eps, mean_of_tokens, padding


class GraphNorm(Masked, After):
    """Normalises every channel over the tokens, after subtracting a times their mean.

    w, a and b are learned per channel and start at 1, 1 and 0. With a = 1 it is an instance norm.
    The computation is in float32 or wider, since squares leave float16's range.

    Args:
        dim: channels C.
        eps: added to the variance, 1e-5 as in torch-geometric; the authors' code has 1e-6.

    Raises:
        InputError: dim is below 1, eps is negative, ``context`` is causal, or its mask differs
            between tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        check_counts(dim=dim)
        check_eps(eps)
        self.weight, self.mean_scale = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))
        self.bias, self.eps = nn.Parameter(torch.zeros(dim)), eps

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        mask, precise = padding(context), x.to(torch.promote_types(x.dtype, torch.float32))
        with torch.autocast(x.device.type, enabled=False):
            centered = precise - self.mean_scale * mean_of_tokens(precise, mask)
            scaled = self.scaled(centered, mask)
        return scaled.to(torch.promote_types(x.dtype, self.weight.dtype))

    def scaled(self, centered: Tensor, mask: Tensor | None) -> Tensor:
        """Divides each channel by its root mean square, then applies w and b."""
        variance = mean_of_tokens(centered.square(), mask)
        return self.weight * centered * (variance + self.eps).rsqrt() + self.bias
