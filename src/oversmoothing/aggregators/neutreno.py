"""NeuTRENO (Nguyen, Nguyen, Baraniuk, Mitigating Over-smoothing in Transformers via Regularized
Nonlocal Functionals, NeurIPS 2023).

.. math:: M V_l + λ (V_1 − V_l)

V_1 are the values of the first layer, so tokens keep a part of the differences that they had there.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Tokenwise
from oversmoothing.aggregators.checks import check_finite, like
from oversmoothing.aggregators.values import own_values, with_gradients


class NeuTRENO(Tokenwise, Inside):
    """Adds λ times what the values of a token have lost since the first layer with this method.

    The first layer stays as it is. λ = 0.6 changes what trained weights compute; ``scale=0`` with
    ``learned=True`` starts as the network. The cost is one sum; the values of the first layer stay
    in memory during a call. The results equal those of the authors' layer
    (tamnguyen9520/NeuTRENO_NeurIPS2024, 8d8cb0d3).

    Args:
        scale: λ; the authors use 0.6 on ImageNet and 0.4 on WikiText-103.
        learned: learn λ, one for each layer, from this start.

    Raises:
        InputError: the scale is not finite.

    Shapes: mixed (..., N, C), v (..., N, C) -> (..., N, C). With ``context.mask`` or
    ``context.causal`` mixed may hold only the last N_q tokens.
    """

    reads_values = True

    def __init__(self, scale: float = 0.6, learned: bool = False) -> None:
        super().__init__()
        check_finite("scale", scale)
        self.scale = nn.Parameter(torch.tensor([float(scale)])) if learned else scale

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        if context.first_values is None:
            return with_gradients(mixed, self.scale)
        lost = context.first_values.to(v) - v
        return mixed + like(self.scale, mixed) * own_values(lost, mixed.shape[-2], context)
