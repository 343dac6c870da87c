"""Products whose results have the memory layout of the tokens.

The tokens (B, N, C) of a ViT are contiguous; those of a CNN are a view of its features (B, C, N).
Results and gradients get the layout of the tokens, so nothing is copied before or after.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def product(a: Tensor, b: Tensor) -> Tensor:
    """Computes a @ b with the layout of a. Shapes: a (..., N, C), b (..., C, K) -> (..., N, K)."""
    return (b.mT @ a.mT).mT if _transposed(a) else a @ b


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Computes layer(x) with the layout of x. Shapes: x (..., N, C) -> (..., N, K)."""
    if x.ndim != 3 or not _transposed(x):
        return layer(x)
    return F.conv1d(x.mT, layer.weight.unsqueeze(-1), layer.bias).mT


def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Computes x.softmax(dim) with the layout of x; torch's result is always contiguous.

    Args:
        x: (..., N, K).
        dim: −1 or −2.
        dtype: type of the result; None: that of x.
    """
    return x.mT.softmax(-3 - dim, dtype).mT if _transposed(x) else x.softmax(dim, dtype)


def _transposed(x: Tensor) -> bool:
    return x.mT.is_contiguous() and not x.is_contiguous()
