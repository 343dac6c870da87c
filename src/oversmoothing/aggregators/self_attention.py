"""Self-attention with external attention's norm (Guo et al., TPAMI 2022, Beyond Self-attention)."""

from typing import get_args

from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Instead
from oversmoothing.aggregators.checks import check_counts
from oversmoothing.aggregators.external import Norm, normalised
from oversmoothing.aggregators.external_multihead import check_heads
from oversmoothing.checks import check_choice


class SelfAttention(Instead):
    """Multi-head self-attention with a choice of norm; quadratic in N.

    .. math:: \\tilde X = W_o [\\ldots, \\mathrm{Norm}(Q_h K_hᵀ / \\sqrt d) V_h, \\ldots] + b_o,
              \\quad [Q, K, V] = W X + b

    The double norm is a softmax over the queries, followed by a division by the sum over the keys.
    This equals the usual softmax over the keys of the scores less their logsumexp over the queries,
    so a key with high scores for all queries counts less. It is one step of Sinkhorn's iteration
    towards a doubly stochastic M. Prefix tokens take part.

    Args:
        dim: channels C.
        num_heads: heads; None: one for every 64 channels.
        norm: ``double``: as above. ``tokens``: a softmax over the queries alone. ``softmax``: over
            the keys, the usual self-attention. ``none``: the scores as they are.

    Raises:
        InputError: a number is below 1, the heads do not divide the channels, or norm is unknown.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int, num_heads: int | None = None, norm: Norm = "double") -> None:
        super().__init__()
        check_choice("aggregator.norm", norm, get_args(Norm))
        self.norm = norm
        check_counts(dim=dim)
        self.width = dim // check_heads(num_heads, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        for layer in (self.qkv, self.proj):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, -1, self.width)).transpose(-2, -4)
        q, k, v = qkv.unbind(dim=-3)  # (..., heads, N, d)
        heads = normalised(q * self.width**-0.5 @ k.mT, self.norm) @ v
        return self.proj(heads.transpose(-2, -3).flatten(-2))
