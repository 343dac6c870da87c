"""The uniformity loss, of which ContraNorm is one gradient step (Guo et al., ICLR 2023, 3.2)."""

import math

import torch
from torch import Tensor


def uniformity(x: Tensor, temperature: float = 1.0) -> Tensor:
    """Computes the uniformity loss, the mean over i of log meanⱼ exp(xᵢ·xⱼ/τ).

    It measures how close the tokens lie. For tokens of norm 1, it is 1/τ if all are equal, and it
    falls as they spread more evenly. It is differentiable and can be added to a training loss. Its
    gradient is (P + Pᵀ) x / (N τ) with P = softmax(x xᵀ/τ). Tokens in half precision are converted
    to float32, in which the loss is returned. Wang and Isola 2020 take the logarithm of one mean
    over all pairs, of exp(−2 ‖xᵢ − xⱼ‖²).

    Args:
        x: tokens; divide them by their norms to compare directions only.
        temperature: τ, above 0.

    Shapes: x (..., N, C) -> (...).
    """
    N = x.shape[-2]
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    with torch.autocast(x.device.type, enabled=False):
        return (x @ x.mT / temperature).logsumexp(dim=-1).mean(dim=-1) - math.log(N)
