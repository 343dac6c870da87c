"""Value residual (ResFormer; Zhou et al., Value Residual Learning, ACL 2025).

.. math:: V_l ← a V_1 + b V_l, \\quad \\text{then } M V_l

V_1 are the values of the first layer, before the mixing.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Tokenwise
from oversmoothing.aggregators.checks import check_finite, like
from oversmoothing.aggregators.values import with_gradients


class ValueResidual(Tokenwise, Inside):
    """Mixes the values of the first layer with this method into those of the later ones.

    The first layer stays as it is. a = b = ½ changes what trained weights compute; ``first=0,
    own=1, learned=True`` starts as the network. The cost is one sum before the kernel of the
    attention; the values of the first layer stay in memory during a call. The results equal those
    of the authors' layer (Zcchill/Value-Residual-Learning, 95652f64).

    Args:
        first: a, the share of the first layer's values.
        own: b, the share of the layer's own values.
        learned: learn a and b, one each for every layer, from this start.

    Raises:
        InputError: a or b is not finite.

    Shapes: mixed (..., N, C), v (..., N, C) -> (..., N, C), which is mixed.
    """

    reads_values = True

    def __init__(self, first: float = 0.5, own: float = 0.5, learned: bool = False) -> None:
        super().__init__()
        check_finite("first", first)
        check_finite("own", own)
        self.first, self.own = (
            nn.Parameter(torch.tensor([float(value)])) if learned else value
            for value in (first, own)
        )

    def values(self, v: Tensor, context: Context = PLAIN) -> Tensor:
        if context.first_values is None:
            return with_gradients(v, self.first, self.own)
        return like(self.first, v) * context.first_values.to(v) + like(self.own, v) * v

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        return mixed
