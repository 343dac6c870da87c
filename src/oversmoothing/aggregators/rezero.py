"""ReZero (Bachlechner et al., UAI 2021) and LayerScale (Touvron et al., CaiT, ICCV 2021).

.. math:: x ← x + α f(x)

A branch f begins with a small share, so a deep network begins near the identity.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Tokenwise
from oversmoothing.aggregators.checks import check_counts, check_finite


class ReZero(Tokenwise, After):
    """Multiplies a branch by a learned α before the residual sum.

    Every branch has its own α. In ReZero's code, attention and MLP of a layer share one.

    Args:
        dim: channels C.
        start: initial α. ReZero: 0. CaiT: 1e-4 by default, 1e-5 or 1e-6 in models of 24 to 48
            blocks.
        per_channel: learn one α for each channel (LayerScale), else one for all (ReZero).

    Raises:
        InputError: dim is below 1, or ``start`` is not finite.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    of_branches = True

    def __init__(self, dim: int, start: float = 0.0, per_channel: bool = False) -> None:
        super().__init__()
        check_counts(dim=dim)
        check_finite("start", start)
        self.alpha = nn.Parameter(torch.full((dim if per_channel else 1,), float(start)))

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return self.alpha * x
