"""NodeNorm (Zhou et al., CIKM 2021, Understanding and Resolving Performance Degradation in Deep
GCNs, arXiv:2006.07107): divides each token by a root of its standard deviation.
"""

import torch
from torch import Tensor

from oversmoothing.aggregators.base import PLAIN, After, Context, Tokenwise
from oversmoothing.aggregators.checks import check_eps, check_finite
from oversmoothing.errors import InputError


class NodeNorm(Tokenwise, After):
    """Computes x / std(x)^(1/p), with the standard deviation over the channels of the token.

    The computation is in float32 or wider, since squares leave float16's range.

    Args:
        power: p; 1 makes the standard deviation of every token 1.
        eps: added to the variance.

    Raises:
        InputError: the power is not above 0, or eps is negative.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, power: float = 2.0, eps: float = 1e-5) -> None:
        super().__init__()
        check_finite("power", power)
        check_eps(eps)
        if not power > 0:
            raise InputError(f"aggregator.power: expected a number above 0, got {power}")
        self.power, self.eps = power, eps

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        variance = precise.var(dim=-1, correction=0, keepdim=True) + self.eps
        return (precise * variance.pow(-0.5 / self.power)).to(x.dtype)
