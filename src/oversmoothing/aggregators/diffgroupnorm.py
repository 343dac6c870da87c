"""Differentiable group normalisation (DGN; Zhou et al., NeurIPS 2020, arXiv:2006.06972, Eq. 4).

.. math:: x + λ \\sum_g \\mathrm{BN}_g(s_g ⊙ x), \\quad s = \\mathrm{softmax}(x U)

Each token belongs to G groups with the shares s, and each group has its own batch normalisation.
The sum over groups is computed by matrix products, without the G × C numbers of every token.
"""

import torch
import torch.nn.functional as F
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
        self.norm = _GroupNorms(groups, dim, eps, momentum)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = x.float() if x.element_size() < 4 else x  # squares leave float16's range
            s = F.linear(wide, self.group.weight.to(wide.dtype)).softmax(dim=-1)
            normed = over_batch(self.norm, torch.cat([wide, s], dim=-1), padding(context))
        return x + self.lam * normed.to(x.dtype)


class _GroupNorms(nn.BatchNorm1d):
    """Computes Σ_g BN_g(s_g ⊙ x). Shapes: x and s, side by side, (n, C + G) -> (n, C)."""

    def __init__(self, groups: int, dim: int, eps: float, momentum: float) -> None:
        super().__init__(groups * dim, eps=eps, momentum=momentum)
        self.shape = groups, dim

    def forward(self, rows: Tensor) -> Tensor:
        G, C = self.shape
        x, s = rows.split((C, G), dim=-1)
        if self.training:
            mean, var = _moments(x, s)
            self._remember(mean.flatten(), var.flatten(), len(rows))
        else:
            mean, var = (
                own.view(G, C).to(x.dtype) for own in (self.running_mean, self.running_var)
            )
        weight, bias = (own.view(G, C).to(x.dtype) for own in (self.weight, self.bias))
        factor = weight * (var + self.eps).rsqrt()
        return x * (s @ factor) + (bias - mean * factor).sum(dim=0)

    @torch.no_grad()
    def _remember(self, mean: Tensor, var: Tensor, n: int) -> None:
        """Updates the moving averages, that of the variance with its unbiased estimate."""
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
        self.running_var.lerp_(var.to(self.running_var) * (n / (n - 1)), self.momentum)


def _moments(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Computes mean and variance of s_g ⊙ x over the tokens.

    With x = m + d and s = t + e, where m and t are means, s x − mean = t d + m e + (e d − mean).
    So the variance is a sum of moments of d and e, which stays exact where tokens are alike.

    Shapes: x (n, C), s (n, G) -> twice (G, C).
    """
    (n, C), G = x.shape, s.shape[1]
    m, t = x.mean(dim=0), s.mean(dim=0)[:, None]
    d, e = x - m, s - t.T
    left, right = torch.cat([e, e.square()], dim=1), torch.cat([d, d.square()], dim=1)
    (ed, ed2), (e2d, e2d2) = (both.split(C, dim=1) for both in (left.T @ right / n).split(G))
    d2, e2 = d.square().mean(dim=0), e.square().mean(dim=0)[:, None]
    var = t.square() * d2 + m.square() * e2 + 2 * t * m * ed
    var = var + 2 * (t * ed2 + m * e2d) + e2d2 - ed.square()
    return t * m + ed, var.clamp(min=0)
