"""Re-attention (Zhou et al., DeepViT: Towards Deeper Vision Transformer, 2021, arXiv:2103.11886).

.. math:: \\mathrm{Norm}(Θᵀ A) V

In deep layers the maps A of all heads become alike. Here each head gets a learned combination of
the maps of all heads, normalised over all pairs of tokens (a batch norm with a scale and a shift
for each head).
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Masked
from oversmoothing.aggregators.checks import PADDING, check_counts, over_batch
from oversmoothing.errors import InputError


class ReAttention(Masked, Inside):
    """Combines the attention maps across heads by a learned H × H matrix, then a batch norm.

    The maps are formed (H N² numbers for each sample), since no fused attention shows them. Values
    that a token cannot see keep the weight 0, and the norm's statistics leave out these weights and
    padding. Under autocast the maps stay in float32: the norm divides by their small differences,
    which half precision does not have. The results equal those of the authors' layer
    (zhoudaquan/dvit_repo, 1ccb152c).

    Args:
        heads: H; a network gives it.
        norm: normalise the combined maps. Their rows then sum to 0 on average, not to 1, so the
            network has to be trained with it from the start.
        identity: Θ = I at the start; with ``norm=False`` this leaves a network as it is. The
            authors have no such option; they draw Θ and a bias from U(±1/√H), as with False.

    Raises:
        InputError: H is below 1, or the mask differs between heads.

    Shapes: M (..., H, N_q, N) -> (..., H, N_q, N), which mixes V.
    """

    reads_maps = True
    can_be_shared = False

    def __init__(self, heads: int = 1, norm: bool = True, identity: bool = False) -> None:
        super().__init__()
        check_counts(heads=heads)
        self.theta = nn.Linear(heads, heads)
        self.norm = nn.BatchNorm1d(heads) if norm else None
        if identity:
            nn.init.eye_(self.theta.weight)
            nn.init.zeros_(self.theta.bias)

    def maps(self, m: Tensor, context: Context = PLAIN) -> Tensor:
        N_q, N = m.shape[-2:]
        seen = self._pairs(m, context.mask)
        own = next(self.parameters(), m).dtype
        with torch.autocast(m.device.type, enabled=False):
            combined = self.theta(m.to(own).movedim(-3, -1)).flatten(-3, -2)  # (..., N_q N, H)
            if self.norm is not None:
                combined = over_batch(self.norm, combined, seen, self.training)
            elif seen is not None:
                combined = combined * seen.mT
        return combined.to(m.dtype).unflatten(-2, (N_q, N)).movedim(-1, -3)

    def _pairs(self, m: Tensor, mask: Tensor | None) -> Tensor | None:
        """Returns which pairs of tokens count, (..., 1, N_q N); with a norm, no row of padding."""
        if mask is None:
            return None
        *_, N_q, N = m.shape
        mask = torch.atleast_2d(mask)
        if mask.dim() > 2 and mask.shape[-3] != 1:
            of_first = mask[..., :1, :, :]
            if torch.compiler.is_compiling() or not (mask == of_first).all():
                raise InputError(
                    f"context.mask: expected the same for all heads, (..., 1, N_q, N), got "
                    f"{tuple(mask.shape)}; {PADDING}"
                )
            mask = of_first
        seen = mask.expand(*m.shape[:-3], 1, N_q, N)
        if N_q == N and self.norm is not None:
            seen = seen & seen.any(dim=-2)[..., None]
        return seen.flatten(-2)

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        return mixed
