"""External attention (EANet, Guo et al., TPAMI 2022, Beyond Self-attention)."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Instead
from oversmoothing.aggregators.checks import check_counts
from oversmoothing.aggregators.memory_layout import linear, softmax
from oversmoothing.checks import check_choice

EPS = 1e-9  # added to the sum over slots, as in the authors' code
Norm = Literal["double", "tokens", "softmax", "none"]


class External(Instead):
    """Attention of all tokens, prefix included, to a learned memory; linear in N.

    .. math:: \\tilde X = \\mathrm{Norm}(X M_kᵀ) M_v

    Norm applies a softmax over the tokens and then divides each row by its sum over the slots. It
    equals a softmax over the slots of X M_kᵀ − ℓ, where ℓ is the logsumexp of X M_kᵀ over the
    tokens. So tokens exchange information only through the S numbers ℓ; without a softmax over the
    tokens they exchange none. The memories M_k and M_v are separate parameters with the same
    initial values.

    Args:
        dim: channels C.
        num_slots: S, number of rows of a memory.
        norm: ``double``: as above. ``tokens``: only its softmax over the tokens, so a row sums to
            about S/N. ``softmax``: a softmax over the slots, as in self-attention. ``none``:
            X M_kᵀ as it is.

    Raises:
        InputError: a number is below 1, or the norm is unknown.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int, num_slots: int = 64, norm: Norm = "double") -> None:
        super().__init__()
        check_counts(dim=dim, num_slots=num_slots)
        check_choice("aggregator.norm", norm, get_args(Norm))
        self.norm = norm
        self.key = nn.Linear(dim, num_slots, bias=False)  # M_k
        self.value = nn.Linear(num_slots, dim, bias=False)  # M_v, transposed
        nn.init.normal_(self.value.weight, std=(2 / dim) ** 0.5)
        with torch.no_grad():
            self.key.weight.copy_(self.value.weight.mT)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return linear(self.value, normalised(linear(self.key, x), self.norm))


def normalised(scores: Tensor, norm: Norm) -> Tensor:
    """Turns scores into attention by a norm of ``External``. Shapes: (..., N, S) -> (..., N, S)."""
    if norm == "none":
        return scores
    if norm == "double":
        return double_norm(scores)
    return softmax(scores, dim=-2 if norm == "tokens" else -1)


def double_norm(scores: Tensor) -> Tensor:
    """Applies a softmax over the tokens, then divides rows by their sum over the slots.

    The computation is in float32 or wider, since EPS is 0 in float16. The result has the type of
    ``scores``.

    Shapes: (..., N, S) -> (..., N, S).
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    attention = softmax(scores, dim=-2, dtype=dtype)
    return (attention / (EPS + attention.sum(dim=-1, keepdim=True))).to(scores.dtype)
