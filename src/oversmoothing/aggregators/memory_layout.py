"""Products that keep the memory layout of tokens.

A ViT's tokens (B, N, C) are contiguous, a CNN's are a view of its features (B, C, N). Either
way results and gradients come out laid out as the tokens, so that nothing has to be copied before
or after.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, laid out as a. Shapes: a (..., N, C), b (..., C, K) -> (..., N, K)."""
    return (b.mT @ a.mT).mT if _transposed(a) else a @ b


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """layer(x), laid out as x. Shapes: x (..., N, C) -> (..., N, K)."""
    if x.ndim != 3 or not _transposed(x):
        return layer(x)
    return F.conv1d(x.mT, layer.weight.unsqueeze(-1), layer.bias).mT


def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """x.softmax(dim), laid out as x; torch's is always contiguous.

    Args:
        x: (..., N, K).
        dim: −1 or −2.
        dtype: of the result; None: as x.
    """
    return x.mT.softmax(-3 - dim, dtype).mT if _transposed(x) else x.softmax(dim, dtype)


def _transposed(x: Tensor) -> bool:
    return x.mT.is_contiguous() and not x.is_contiguous()
