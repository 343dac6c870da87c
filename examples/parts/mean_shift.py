"""Subtracts a learned part of the mean token."""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Context


class MeanShift(After):
    """x − f · (mean token), with f learned for each channel.

    Args:
        dim: channels C; the backbone gives it.
        fraction: f at the start; 1 centers the tokens, 0 leaves them.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int, fraction: float = 0.5) -> None:
        super().__init__()
        self.fraction = nn.Parameter(torch.full((dim,), float(fraction)))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return x - self.fraction * x.mean(dim=-2, keepdim=True)
