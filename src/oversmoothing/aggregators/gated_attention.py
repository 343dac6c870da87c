"""Gated attention (Qiu et al., Gated Attention for Large Language Models: Non-linearity, Sparsity,
and Attention-Sink-Free, NeurIPS 2025, arXiv:2505.06708).

.. math:: σ(X W_g) ⊙ M V

X are the tokens that the layer gets. The gate follows the product, before the output projection:
a token can ignore what it attended to, so no first token has to take up unneeded attention.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Tokenwise
from oversmoothing.aggregators.checks import check_counts
from oversmoothing.errors import InputError


class GatedAttention(Tokenwise, Inside):
    """Multiplies what every head mixed by a learned gate between 0 and 1 of the token itself.

    The authors train from scratch; gates then start near ½. The results equal those of their layer
    (qiuzh20/gated_attention, 49645df6). M is not formed, so attention stays fused.

    Args:
        dim: channels of a head; a network gives it.
        heads: H; a network gives it.
        channels: of the tokens X; a network gives it. None: H times ``dim``.
        elementwise: a gate for every channel of every head, else one for every head.
        identity: gates 2σ(X W_g) with W_g = 0 at the start, which leaves a network as it is, for
            fine-tuning; the authors have no such option.

    Raises:
        InputError: a size is below 1, or ``context.tokens`` is missing.

    Shapes: mixed (..., H, N_q, C), ``context.tokens`` (..., N_q, channels) -> (..., H, N_q, C);
    without H for one head.
    """

    reads_tokens = True

    def __init__(
        self,
        dim: int,
        heads: int = 1,
        channels: int | None = None,
        elementwise: bool = False,
        identity: bool = False,
    ) -> None:
        super().__init__()
        check_counts(dim=dim, heads=heads)
        channels = heads * dim if channels is None else channels
        check_counts(channels=channels)
        self.heads, self.scale = heads, 2.0 if identity else 1.0
        self.gate = nn.Linear(channels, heads * (dim if elementwise else 1), bias=False)
        nn.init.normal_(self.gate.weight, std=0.0 if identity else 0.02)

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        if context.tokens is None:
            raise InputError(
                "context.tokens: gated attention needs the tokens that the layer gets; give them, "
                "or let oversmoothing.apply put it into a model of timm, transformers or torch"
            )
        gates = self.scale * torch.sigmoid(self.gate(context.tokens))
        by_head = gates.unflatten(-1, (self.heads, -1)).transpose(-2, -3)  # (..., H, N_q, 1 or C)
        alone = mixed.dim() == context.tokens.dim()  # one head without an axis
        return mixed * (gates if alone else by_head).to(mixed.dtype)
