"""ContraNorm-D, the dual of ContraNorm over channels (Guo et al., ICLR 2023, appendix)."""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Masked
from oversmoothing.aggregators.checks import check_counts, check_finite, check_temperature, padding
from oversmoothing.aggregators.sparse_softmax import unit


class ContraNormD(Masked, After):
    """Moves channels away from each other: x ← LN(x − s · x softmax(xᵀx/τ)); linear in N.

    The paper prints s/τ in place of s, and no τ in the softmax; τ is as in the authors' code.
    All but the LayerNorm is computed in float32 or wider: sums over tokens leave float16's range,
    and little is left of x where the softmax is nearly I.

    Args:
        dim: channels C.
        scale: s.
        temperature: τ of the softmax over channels, above 0.
        normalize: use x̂ = x/‖x‖ (of each token) in the softmax, as in the authors' code. The
            paper's formula uses x, whose products grow with N: with many tokens the softmax is
            nearly I, and with s = 1 and without ``identity`` nothing is left of x.
        identity: use (1 + s) x instead of x outside the product, as in the authors' code.
        layernorm: apply LayerNorm at the end, as in the paper's formula.

    Raises:
        InputError: dim is below 1, the scale is not finite, the temperature is not above 0,
            ``context`` is causal, or its mask differs between tokens.

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
        check_finite("scale", scale)
        check_counts(dim=dim)
        check_temperature(temperature)
        self.scale, self.temperature = scale, temperature
        self.normalize, self.identity = normalize, identity
        self.norm = nn.LayerNorm(dim) if layernorm else nn.Identity()

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        compared = unit(precise) if self.normalize else precise
        if (mask := padding(context)) is not None:  # hidden tokens do not count in the sums
            compared = compared * mask.mT
        with torch.autocast(x.device.type, enabled=False):
            p = (compared.mT @ compared / self.temperature).softmax(dim=-1)
            kept = (1 + self.scale) * precise if self.identity else precise
            pushed = (kept - self.scale * (precise @ p)).to(x.dtype)
        return self.norm(pushed)
