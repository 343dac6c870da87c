"""The weights W_Q, W_K and W_V of a random transformer, layer by layer."""

import math
from typing import Literal

import torch
from torch import Tensor

from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError

QKV = tuple[Tensor | None, Tensor | None, Tensor | None]  # None is the identity


class RandomWeights:
    """Draws weights on the CPU in float64, so that they do not depend on the device and the type.

    Args:
        generators: one for each seed.
        dim: d.
        kind: the identity, or entries from U[0, 1] or N(0, std²).
        std: standard deviation of normal weights; ``fan_in`` is 1/√d.
        shared: use the same weights in all layers.
        value: W_V is drawn like the others, or is the identity.

    Raises:
        InputError: kind, std or value out of range.
    """

    def __init__(
        self,
        generators: list[torch.Generator],
        dim: int,
        kind: Literal["identity", "uniform", "normal"],
        std: float | Literal["fan_in"],
        shared: bool,
        value: Literal["drawn", "identity"],
    ) -> None:
        check_choice("backbone.weights", kind, ("identity", "uniform", "normal"))
        check_choice("backbone.value", value, ("drawn", "identity"))
        self.generators, self.dim, self.kind, self.value = generators, dim, kind, value
        self.std = _std(std, dim)
        self.shared = self._draw() if shared else None

    def next_layer(self, device: torch.device | str, dtype: torch.dtype) -> QKV:
        """Returns W_Q, W_K, W_V (S, d, d) of the next layer; None is the identity."""
        weights = self._draw() if self.shared is None else self.shared
        if weights is None:
            return None, None, None
        w_q, w_k, *w_v = weights.to(device, dtype).unbind(1)
        return w_q, w_k, *(w_v or [None])

    def _draw(self) -> Tensor | None:
        """Draws W_Q, W_K and, unless it is the identity, W_V. Shapes: -> (S, 2 or 3, d, d)."""
        if self.kind == "identity":
            return None
        count = 3 if self.value == "drawn" else 2
        draws = torch.empty(len(self.generators), count, self.dim, self.dim, dtype=torch.float64)
        for of_seed, generator in zip(draws, self.generators):
            if self.kind == "uniform":
                of_seed.uniform_(generator=generator)
            else:
                of_seed.normal_(std=self.std, generator=generator)
        return draws


def _std(std: float | str, dim: int) -> float:
    value = 1 / math.sqrt(dim) if std == "fan_in" else std
    if not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InputError(f"backbone.weight_std: expected fan_in or a number above 0, got {std}")
    return value
