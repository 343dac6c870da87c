"""Centered aggregation (Ali, Galanti, Wolf, Centered Self-Attention Layers, Sec. 3.2).

.. math:: S_γ(X) = (M + γ 11ᵀ/n) V

M is the row-stochastic mixing: a softmax attention or a normalised adjacency. The paper also gives
a form with γ 11ᵀ/n inside the softmax. That form is not implemented: a softmax ignores a constant
added to a row, so it equals plain attention for every γ.
"""

import torch
from torch import Tensor

from oversmoothing.aggregators.base import Context, Inside
from oversmoothing.errors import InputError


class Centered(Inside):
    """Adds γ times the mean of the values to every mixed token; rows of the matrix sum to 1 + γ.

    The N×N matrix is not formed, so attention can be fused and adjacencies can be sparse. If
    gradients are disabled, ``mixed`` is overwritten, which saves a tensor of its size.

    Args:
        gamma: γ; −1 centers the rows, 0 changes nothing. A tensor broadcasts against (..., N, C),
            with one γ for each leading entry.
        warmup: number of training steps in which γ grows linearly from 0; 0: no warm-up.
        prefix_in_mean: include prefix tokens (CLS, distillation) in the mean.
        row_sum: scale the mean by the row sums of M, which the paper's formula does not. With a
            mixing that is not row-stochastic (symmetric adjacency), γ = −1 then centers the rows.

    Raises:
        InputError: γ is not finite, or the warm-up is negative.

    Shapes: mixed (..., N, C), v (..., N, C) -> (..., N, C).
    """

    def __init__(
        self,
        gamma: float | Tensor = -1.0,
        warmup: int = 0,
        prefix_in_mean: bool = True,
        row_sum: bool = False,
    ) -> None:
        super().__init__()
        if not torch.as_tensor(gamma, dtype=torch.float64).isfinite().all():
            raise InputError(
                f"aggregator.gamma: expected a finite number, got {gamma}; "
                "-1 centers the rows, 0 changes nothing"
            )
        if warmup < 0:
            raise InputError(f"aggregator.warmup: expected 0 or more training steps, got {warmup}")
        self.gamma, self.warmup = gamma, warmup
        self.prefix_in_mean, self.row_sum = prefix_in_mean, row_sum
        self.progress = 0.0 if warmup else 1.0  # factor on γ during the warm-up

    def advance(self, step: int) -> None:
        if self.warmup:
            self.progress = min(1.0, step / self.warmup)

    def get_extra_state(self) -> dict[str, float]:
        return {"progress": self.progress}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.progress = state["progress"]

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        counted = v if self.prefix_in_mean else v[..., context.prefix :, :]
        mean = counted.mean(dim=-2, keepdim=True)
        if self.row_sum and context.row_sum is not None:
            mean = context.row_sum * mean
        shift = self.progress * self.gamma * mean
        return mixed + shift if torch.is_grad_enabled() else mixed.add_(shift)

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}, warmup={self.warmup}"
