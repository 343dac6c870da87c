"""PairNorm (Zhao, Akoglu, ICLR 2020, PairNorm: Tackling Oversmoothing in GNNs, Eq. 10–11)."""

from typing import Literal, get_args

import torch
from torch import Tensor

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import check_eps, check_finite, like, mean_of_tokens, padding
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError

Mode = Literal["PN", "PN-SI", "PN-SCS"]


class PairNorm(Masked, After):
    """Keeps the total squared distance between pairs of tokens constant.

    With the mean token x̄ of the input and xᶜ = x − x̄, the result is

    - ``PN``: s·xᶜ / sqrt(eps + mean_i ‖xᶜ_i‖²);
    - ``PN-SI``: s·xᶜ_i / sqrt(eps + ‖xᶜ_i‖²), so that every token has norm s;
    - ``PN-SCS``: s·x_i / sqrt(eps + ‖x_i‖²) − x̄.

    The computation is in float32 or wider, since sums of squares leave float16's range.

    Args:
        mode: one of the three.
        scale: s, above 0. A tensor broadcasts against (..., N, C), with one s for each leading
            entry.
        eps: added under the root, as in the authors' code.

    Raises:
        InputError: the mode is unknown, the scale is not above 0 and finite, eps is negative,
            ``context`` is causal, or its mask differs between tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(
        self,
        mode: Mode = "PN",
        scale: float | Tensor = 1.0,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        check_choice("aggregator.mode", mode, get_args(Mode))
        check_finite("scale", scale)
        check_eps(eps)
        if not (torch.as_tensor(scale, device="cpu") > 0).all():
            raise InputError(f"aggregator.scale: expected a number above 0, got {scale}")
        self.mode, self.scale, self.eps = mode, scale, eps

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        with torch.autocast(x.device.type, enabled=False):
            return self._normalised(precise, padding(context)).to(x.dtype)

    def _normalised(self, x: Tensor, mask: Tensor | None) -> Tensor:
        mean, scale = mean_of_tokens(x, mask), like(self.scale, x)
        x = x if self.mode == "PN-SCS" else x - mean
        squares = x.square().sum(dim=-1, keepdim=True)
        squares = mean_of_tokens(squares, mask) if self.mode == "PN" else squares
        x = scale * x / (self.eps + squares).sqrt()
        return x - mean if self.mode == "PN-SCS" else x
