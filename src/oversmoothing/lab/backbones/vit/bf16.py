"""Attention in bf16 on CPUs, where the backward pass of torch's fused kernel is slow."""

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.backbones.precision import Replacing, in_bf16_on_cpu


def attending(device: torch.device) -> contextlib.AbstractContextManager:
    """Context in which attention is computed by two products if that is faster.

    On a CPU with AVX512-BF16 and with 26 to 442 tokens, forward and backward then take 0.3 to 0.5
    of the fused kernel's time. Without gradients, in fp32, and on GPUs, the fused kernel is as fast
    or faster.
    """
    plain = in_bf16_on_cpu(device) and torch.is_grad_enabled()
    fused = F.scaled_dot_product_attention
    return Replacing(fused, _attention) if plain else contextlib.nullcontext()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Computes softmax(Q Kᵀ/√d) V; with a mask, dropout or other options by the fused kernel."""
    if attn_mask is not None or dropout_p or is_causal or options:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, **options
        )
    scores = (query * query.shape[-1] ** -0.5) @ key.mT
    return scores.softmax(dim=-1) @ value
