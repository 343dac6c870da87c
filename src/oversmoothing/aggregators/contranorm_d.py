"""ContraNorm-D, the feature-wise dual of ContraNorm, linear in the number of tokens.

(Guo et al., ICLR 2023, appendix on the dual form.)
"""

import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Context
from oversmoothing.errors import InputError


class ContraNormD(After):
    """x ← LN(x − s · x softmax(xᵀx/τ)): channels are pushed apart instead of tokens.

    Args:
        dim: channels C.
        scale: s.
        temperature: τ of the softmax over channels, above 0.
        normalize: use x̂ = x/‖x‖ (per token) in the softmax, as the authors' code does; the
            paper's formula has x, whose products grow with N.
        identity: (1 + s) x in place of x, as in the authors' code.
        layernorm: LayerNorm at the end, as in the paper's formula.

    Raises:
        InputError: temperature not above 0.

    Shapes: x (..., N, C) -> (..., N, C); cost O(N C²).
    """

    def __init__(
        self,
        dim: int,
        scale: float = 1.0,
        temperature: float = 1.0,
        normalize: bool = False,
        identity: bool = False,
        layernorm: bool = True,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise InputError(
                f"aggregator.temperature: expected a number above 0, got {temperature}"
            )
        self.scale = scale
        self.temperature = temperature
        self.normalize = normalize
        self.identity = identity
        self.norm = nn.LayerNorm(dim) if layernorm else nn.Identity()

    def forward(self, x: Tensor, context: Context) -> Tensor:
        compared = F.normalize(x, dim=-1) if self.normalize else x
        p = (compared.mT @ compared / self.temperature).softmax(dim=-1)
        kept = (1 + self.scale) * x if self.identity else x
        return self.norm(kept - self.scale * (x @ p))
