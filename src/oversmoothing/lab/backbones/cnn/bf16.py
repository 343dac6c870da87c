"""Depthwise convolutions in fp32 on CPUs, where some of torch's bf16 kernels are slow."""

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.backbones.precision import Replacing, in_bf16_on_cpu


def convolving(device: torch.device) -> contextlib.AbstractContextManager:
    """Context in which depthwise convolutions with a stride or a dilation are computed in fp32.

    In fp32 their forward and backward passes take 0.13 to 0.62 of the time in bf16, on a CPU with
    AVX512-BF16 (``benchmarks/seg_step.py``). All other convolutions are faster in bf16.
    """
    replaced = in_bf16_on_cpu(device)
    return Replacing(F.conv2d, _conv2d) if replaced else contextlib.nullcontext()


def _conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolves, in fp32 if that is faster; the output is in bf16."""
    options = (bias, stride, padding, dilation, groups)
    if groups == 1 or stride in (1, (1, 1)) and dilation in (1, (1, 1)):
        return F.conv2d(x, weight, *options)
    with torch.autocast("cpu", enabled=False):
        return F.conv2d(x.float(), weight, *options).bfloat16()
