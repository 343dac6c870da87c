r"""Centering (Ali, Galanti, Wolf, Sec. 3.2; ``centered.py``) on a GPU in one kernel.

.. math:: S = M V + γ 1 \bar v^⊤

It reads the values once, and adds their mean. The module imports Triton, which comes with torch for
CUDA.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

CELLS = 2**13  # numbers of a program at a time
MOST = 4096  # tokens, since one program reads all of a head
TYPES = torch.float32, torch.bfloat16, torch.float16


@triton.jit
def _add_mean(mixed, v, out, gamma, H, N, C, mixed_b, mixed_h, mixed_n, v_b, v_h, v_n,
              out_b, out_h, out_n, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """Writes mixed + γ v̄ of one head."""
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    c, total = tl.arange(0, WIDTH)[None, :], tl.zeros((WIDTH,), dtype=tl.float32)
    v, mixed, out = v + b * v_b + h * v_h, mixed + b * mixed_b + h * mixed_h, out + b * out_b
    for first in range(0, N, ROWS):
        n = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        own = tl.load(v + n * v_n + c, mask=(n < N) & (c < C), other=0.0)
        total += tl.sum(own.to(tl.float32), axis=0)
    plus = (gamma * total / N)[None, :]
    for first in range(0, N, ROWS):
        n = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        own = tl.load(mixed + n * mixed_n + c, mask=(n < N) & (c < C), other=0.0)
        both = (own.to(tl.float32) + plus).to(own.dtype)
        tl.store(out + h * out_h + n * out_n + c, both, mask=(n < N) & (c < C))


class AddMean(torch.autograd.Function):
    """Computes mixed + γ v̄, with v̄ the mean over the tokens, in the type of mixed.

    Shapes: mixed, v (B, H, N, C), with stride 1 over C -> (B, H, N, C).
    """

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, v: Tensor, gamma: float) -> Tensor:
        B, H, N, C = mixed.shape
        ctx.gamma, out = gamma, torch.empty_like(mixed)
        strides = [step for x in (mixed, v, out) for step in x.stride()[:3]]
        width = max(16, triton.next_power_of_2(C))
        rows = max(1, CELLS // width)
        _add_mean[B * H,](mixed, v, out, gamma, H, N, C, *strides, rows, width, num_warps=8)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad, (ctx.gamma * grad.mean(dim=-2, keepdim=True)).expand_as(grad), None


def fits(mixed: Tensor, v: Tensor) -> bool:
    """Whether the kernel takes these tensors."""
    same = mixed.shape == v.shape and mixed.dtype == v.dtype and v.dim() == 4
    few = v.dtype in TYPES and v.shape[-2] <= MOST
    return same and few and mixed.stride(-1) == v.stride(-1) == 1
