"""Layer normalisation of each token over its channels (Ba, Kiros, Hinton, 2016)."""

from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Tokenwise
from oversmoothing.aggregators.checks import check_counts, check_eps


class LayerNorm(Tokenwise, After):
    """Computes (x − mean_C x) / sqrt(var_C x + eps), then a learned scale and shift per channel.

    Args:
        dim: channels C.
        eps: added to the variance.
        affine: learn the scale and the shift.

    Raises:
        InputError: dim is below 1, or eps is negative.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        check_counts(dim=dim)
        check_eps(eps)
        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=affine)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return self.norm(x)
