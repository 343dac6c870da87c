"""Differentiable group normalisation (DGN; Zhou et al., NeurIPS 2020, arXiv:2006.06972, Eq. 4).

.. math:: x + λ \\sum_g \\mathrm{BN}_g(s_g ⊙ x), \\quad s = \\mathrm{softmax}(x U)

Each token belongs to G groups with the shares s, and each group has its own batch normalisation.
The sum over groups is computed by matrix products, without the G × C numbers of every token.
"""

from typing import Any

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

    As in the paper, x U has no bias; the authors' code (Kaixiong-Zhou/DGN) adds one.

    Args:
        dim: channels C.
        groups: G.
        lam: λ. The authors search it by graph and depth, from 0.0005 to 0.5.
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
        with torch.autocast(x.device.type, enabled=False):
            wide = x.float() if x.element_size() < 4 else x  # squares leave float16's range
            normed = over_batch(self._normed, wide, padding(context), self.training)
        return x + self.lam * normed.to(x.dtype)

    def _normed(self, x: Tensor) -> Tensor:
        """Computes Σ_g BN_g(s_g ⊙ x) of all tokens, (n, C) -> (n, C)."""
        norm: Any = self.norm  # for mypy its statistics may be None
        n, C = x.shape
        s = _scores(self.group, x).softmax(dim=-1)
        if n == 0:
            return x
        if type(self.norm) is not nn.BatchNorm1d:  # such as SyncBatchNorm, which needs all numbers
            return norm((s[:, :, None] * x[:, None]).flatten(1)).view(n, -1, C).sum(dim=1)
        centred = _Centred(x, s)
        if self.training:
            mean, var = centred.moments()
            _remember(norm, mean.flatten(), var.flatten(), n)
        else:
            mean, var = (
                own.view(-1, C).to(x.dtype) for own in (norm.running_mean, norm.running_var)
            )
        weight, bias = (own.view(-1, C).to(x.dtype) for own in (norm.weight, norm.bias))
        return centred.scaled(mean, weight * (var + norm.eps).rsqrt()) + bias.sum(dim=0)


def _scores(group: Any, x: Tensor) -> Tensor:
    """Applies a linear layer in the precision of x; one that is quantised or wrapped in its own."""
    if type(group).forward is nn.Linear.forward:
        return F.linear(x, group.weight.to(x.dtype))
    own = next(group.parameters(), x).dtype
    return group(x.to(own)).to(x.dtype)


@torch.no_grad()
def _remember(norm: Any, mean: Tensor, var: Tensor, n: int) -> None:
    """Updates the moving averages, that of the variance with its unbiased estimate."""
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean.to(norm.running_mean), norm.momentum)
    norm.running_var.lerp_(var.to(norm.running_var) * (n / (n - 1)), norm.momentum)


class _Centred:
    """Sums over the groups of y_g = s_g ⊙ x, by matrix products of deviations from means.

    With x = m + d and s = t + e, where m and t are means over the tokens,
    y = t m + t d + e m + e d. Deviations keep their digits where tokens are alike, also in TF32.

    Shapes: x (n, C), s (n, G); moments of y (G, C).
    """

    def __init__(self, x: Tensor, s: Tensor) -> None:
        self.m, self.t = x.mean(dim=0), s.mean(dim=0)[:, None]
        self.d, self.e = x - self.m, s - self.t.T
        self.s = s

    def moments(self) -> tuple[Tensor, Tensor]:
        """Returns mean and variance of y over the tokens."""
        m, t, d, e = self.m, self.t, self.d, self.e
        n, C = d.shape
        left, right = torch.cat([e, e.square()], dim=1), torch.cat([d, d.square()], dim=1)
        products = (left.T @ right / n).split(e.shape[1])
        (ed, ed2), (e2d, e2d2) = (both.split(C, dim=1) for both in products)
        d2, e2 = d.square().mean(dim=0), e.square().mean(dim=0)[:, None]
        var = t.square() * d2 + m.square() * e2 + 2 * t * m * ed
        var = var + 2 * (t * ed2 + m * e2d) + e2d2 - ed.square()
        return t * m + ed, var.clamp(min=0)

    def scaled(self, mean: Tensor, factor: Tensor) -> Tensor:
        """Computes Σ_g (y_g − mean_g) ⊙ factor_g. Shapes: (G, C) twice -> (n, C)."""
        rest = ((self.t * self.m - mean) * factor).sum(dim=0)
        return self.d * (self.s @ factor) + self.m * (self.e @ factor) + rest
