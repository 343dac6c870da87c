"""Multi-head external attention (EAMLP, Guo et al., TPAMI 2022, Beyond Self-attention)."""

from typing import get_args

from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Instead
from oversmoothing.aggregators.checks import check_counts
from oversmoothing.aggregators.external import Norm, normalised
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError

HEAD_WIDTH = 64  # channels of a head in every published EAMLP


class ExternalMultiHead(Instead):
    """External attention with heads that share one pair of memories; linear in N.

    .. math:: \\tilde X = W_o [\\ldots, \\mathrm{Norm}(q_h M_kᵀ + b_k) M_v + b_v, \\ldots],
              \\quad q = W X + b

    q has ``coef`` times as many channels and heads as the self-attention that this one replaces.
    Prefix tokens take part. As in the authors' code, M_k has a bias b_k; with the double norm it
    has no effect, because the softmax over tokens cancels it. There are more parameters than in
    self-attention: at 256 channels 0.534 M instead of 0.262 M.

    Args:
        dim: channels C.
        num_heads: heads of the replaced self-attention; None: one for every 64 channels.
        coef: factor on the numbers of channels and heads.
        num_slots: S, number of rows of a memory.
        norm: as in ``External``.

    Raises:
        InputError: a number is below 1, the heads do not divide the channels, or norm is unknown.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int | None = None,
        coef: int = 4,
        num_slots: int = 64,
        norm: Norm = "double",
    ) -> None:
        super().__init__()
        check_counts(dim=dim, num_slots=num_slots, coef=coef)
        check_choice("aggregator.norm", norm, get_args(Norm))
        self.norm = norm
        self.width = dim // check_heads(num_heads, dim)
        self.query = nn.Linear(dim, coef * dim)
        self.key = nn.Linear(self.width, num_slots)  # M_k
        self.value = nn.Linear(num_slots, self.width)  # M_v, transposed
        self.proj = nn.Linear(coef * dim, dim)
        for layer in (self.query, self.key, self.value, self.proj):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        q = self.query(x).unflatten(-1, (-1, self.width)).transpose(-2, -3)  # (..., heads, N, d)
        heads = self.value(normalised(self.key(q), self.norm))
        return self.proj(heads.transpose(-2, -3).flatten(-2))


def check_heads(num_heads: int | None, dim: int) -> int:
    """Returns the number of heads, by default one for every 64 channels.

    Raises:
        InputError: the number is below 1 or does not divide the channels.
    """
    heads = max(1, dim // HEAD_WIDTH) if num_heads is None else num_heads
    check_counts(num_heads=heads)
    if dim % heads:
        raise InputError(
            f"aggregator.num_heads: expected a divisor of the {dim} channels, got {heads}"
        )
    return heads
