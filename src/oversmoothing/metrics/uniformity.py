"""The uniformity loss, of which ContraNorm is one gradient step (Guo et al., ICLR 2023, 3.2)."""

import math

from torch import Tensor


def uniformity(x: Tensor, temperature: float = 1.0) -> Tensor:
    """Computes how close the tokens lie: the mean over i of log meanⱼ exp(xᵢ·xⱼ/τ).

    It is differentiable, so it can be added to a loss. Of tokens of length 1 it is 1/τ if all are
    equal and lower the more evenly they are spread. Its gradient is (P + Pᵀ) x / (N τ) with
    P = softmax(x xᵀ/τ).

    Args:
        x: tokens; divide them by their norms to compare directions only.
        temperature: τ, above 0.

    Shapes: x (..., N, C) -> (...,).
    """
    N = x.shape[-2]
    return (x @ x.mT / temperature).logsumexp(dim=-1).mean(dim=-1) - math.log(N)
