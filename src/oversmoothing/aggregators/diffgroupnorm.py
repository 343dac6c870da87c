"""Differentiable group normalisation (DGN; Zhou et al., NeurIPS 2020, arXiv:2006.06972, Eq. 4).

.. math:: x + λ \\sum_g \\mathrm{BN}_g(s_g ⊙ x), \\quad s = \\mathrm{softmax}(x U)

Each token belongs to G groups with the shares s, and each group has its own batch normalisation.
"""

from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import (
    check_counts,
    check_eps,
    check_finite,
    check_shares,
    over_batch,
    padding,
)


class DiffGroupNorm(Masked, After):
    """Adds λ times the tokens normalised in learned groups.

    Args:
        dim: channels C.
        groups: G.
        lam: λ. The authors search it by graph and depth, from 0.0005 to 0.05.
        momentum: share of the present statistics in the moving averages; the authors take 0.3.
        eps: added to the variance.

    Raises:
        InputError: dim or groups is below 1, λ is not finite, the momentum is not from 0 to 1, eps
            is negative, a batch has a single token in training, ``context`` is causal, or its mask
            differs between tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    can_be_shared = False
    of_batch = True

    def __init__(
        self,
        dim: int,
        groups: int = 10,
        lam: float = 0.01,
        momentum: float = 0.3,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        check_counts(dim=dim, groups=groups)
        check_finite("lam", lam)
        check_eps(eps)
        check_shares(momentum=momentum)
        self.group, self.lam = nn.Linear(dim, groups, bias=False), lam
        self.norm = nn.BatchNorm1d(groups * dim, eps=eps, momentum=momentum)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        shares = self.group(x).softmax(dim=-1)
        of_groups = shares[..., None] * x[..., None, :]  # (..., N, G, C)
        normed = over_batch(self.norm, of_groups.flatten(-2), padding(context))
        return x + self.lam * normed.view(of_groups.shape).sum(dim=-2)
