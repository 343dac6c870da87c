"""Centered aggregation (Ali, Galanti, Wolf, Centered Self-Attention Layers, Sec. 3.2).

.. math:: S_γ(X) = (M + γ 11ᵀ/n) V

M is the row-stochastic mixing: a softmax attention or a normalised adjacency. The paper also gives
a form with γ 11ᵀ/n inside the softmax. That form is not implemented: a softmax ignores a constant
added to a row, so it equals plain attention for every γ.

Where a token does not see all others (causal models, padding), 11ᵀ/n becomes the uniform attention
over the tokens that it sees. The paper has no such case.
"""

from typing import Any

import torch
from torch import Tensor

from oversmoothing.aggregators.base import PLAIN, Context, Inside, Masked
from oversmoothing.aggregators.checks import check_finite, like, number, runs_triton
from oversmoothing.aggregators.values import mean_of_seen
from oversmoothing.errors import InputError


class Centered(Masked, Inside):
    """Adds γ times the mean of the values to every mixed token; rows of the matrix sum to 1 + γ.

    The N×N matrix is not formed, so attention can be fused and adjacencies can be sparse.

    Args:
        gamma: γ; −1 centers the rows, 0 changes nothing. A tensor broadcasts against (..., N, C),
            with one γ for each leading entry.
        warmup: number of training steps in which γ grows linearly from 0; 0: no warm-up.
        prefix_in_mean: include prefix tokens (CLS, distillation) in the mean. Prefix tokens are the
            first positions; to exclude them, pad texts on the right.
        row_sum: scale the mean by the row sums of M, unlike the paper's formula. γ = −1 then
            also centers the rows of a mixing that is not row-stochastic (symmetric adjacency).

    Raises:
        InputError: γ is not finite, or the warm-up is negative.

    Shapes: mixed (..., N, C), v (..., N, C) -> (..., N, C). With ``context.mask`` or
    ``context.causal`` mixed may hold only the last N_q tokens: (..., N_q, C) -> (..., N_q, C).
    """

    adds_mean = True
    can_be_causal = True

    def __init__(
        self,
        gamma: float | Tensor = -1.0,
        warmup: int = 0,
        prefix_in_mean: bool = True,
        row_sum: bool = False,
    ) -> None:
        super().__init__()
        check_finite("gamma", gamma, "; -1 centers the rows, 0 changes nothing")
        if not number(warmup) >= 0:
            raise InputError(
                f"aggregator.warmup: expected 0 or more training steps, got {warmup!r}"
            )
        self.gamma, self.warmup = gamma, warmup
        self.prefix_in_mean, self.row_sum = prefix_in_mean, row_sum
        self.progress = 0.0 if warmup else 1.0  # factor on γ during the warm-up
        self.node_mean: Any = None  # on parts of a graph: a module v -> mean with settle()

    def advance(self, step: int) -> None:
        if self.warmup:
            self.progress = min(1.0, step / self.warmup)

    @property
    def steady(self) -> bool:
        return self.progress == 1

    def settle(self) -> None:
        if self.node_mean is not None:
            self.node_mean.settle()

    def get_extra_state(self) -> Tensor | None:
        return torch.tensor(self.progress, dtype=torch.float64) if self.warmup else None

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self.warmup:  # safetensors cannot save None
            del destination[f"{prefix}_extra_state"]

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: object) -> None:
        if not self.warmup:
            state_dict.setdefault(f"{prefix}_extra_state", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def set_extra_state(self, state: Tensor | None) -> None:
        if self.warmup and state is not None:
            self.progress = float(state)

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        if self._plain(context) and runs_triton(mixed, v):
            from oversmoothing.aggregators.kernels.centering import AddMean, fits

            if fits(mixed, v):
                return AddMean.apply(mixed, v, self.progress * self.gamma)
        if self.node_mean is not None:
            mean = self.node_mean(v)
        else:
            skipped = 0 if self.prefix_in_mean else context.prefix
            mean = mean_of_seen(v, mixed.shape[-2], context, skipped)
        if self.row_sum and context.row_sum is not None:
            mean = context.row_sum * mean
        return mixed + self.progress * like(self.gamma, mean) * mean

    def _plain(self, context: Context) -> bool:
        """Whether v̄ is the mean over all tokens, with one γ for all."""
        masked = context.causal or context.mask is not None or context.row_sum is not None
        skips = not self.prefix_in_mean and context.prefix > 0
        plain = isinstance(self.gamma, int | float) and self.node_mean is None
        return plain and not (masked or skips)

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}, warmup={self.warmup}"
