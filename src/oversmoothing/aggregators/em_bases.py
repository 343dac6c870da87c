"""The initial bases of EM attention, a moving average (EMANet, Li et al., ICCV 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing import distributed
from oversmoothing.aggregators.base import Instead
from oversmoothing.aggregators.checks import number
from oversmoothing.errors import InputError


class MovingBases(Instead):
    """Updates μ⁽⁰⁾ ← m μ⁽⁰⁾ + (1 − m) mean(μ⁽ᵀ⁾) once in every optimisation step.

    The mean is over all samples of a step, in all parts of the batch and all processes. Checkpoints
    include the sum since the last update. As in EMANet, the initial bases have norm 1, and the
    updates do not restore this norm.

    Args:
        num_bases: K.
        dim: channels C.
        momentum: m, in [0, 1).

    Raises:
        InputError: the momentum is out of range.
    """

    bases: Tensor

    def __init__(self, num_bases: int, dim: int, momentum: float) -> None:
        super().__init__()
        if not 0 <= number(momentum) < 1:
            raise InputError(
                f"aggregator.momentum: expected at least 0 and below 1, got {momentum!r}; at 1 the "
                "bases would never move"
            )
        self.momentum = momentum
        self.register_buffer("bases", torch.empty(num_bases, dim))
        # Not a buffer: before a forward pass, DDP copies the buffers of the first process to all.
        self.pending: Tensor | None = None  # sum of μ⁽ᵀ⁾ and the number of samples, (K·C + 1,)
        self.reset_running_stats()

    def reset_running_stats(self) -> None:
        """Draws the bases anew, as before training."""
        self.bases.copy_(F.normalize(torch.randn_like(self.bases), dim=-1))
        self.pending = None

    def remember(self, mu: Tensor) -> None:
        """Adds the bases μ⁽ᵀ⁾ of samples, (..., K, C) and detached, to the next mean."""
        samples = mu.reshape(-1, *self.bases.shape)
        sums = samples.sum(dim=0).flatten().to(self._precise)
        sums = F.pad(sums, (0, 1), value=len(samples))
        self.pending = sums if self.pending is None else self._sums() + sums

    @torch.no_grad()
    def settle(self) -> None:
        """Updates μ⁽⁰⁾; without new samples it stays the same."""
        [sums] = distributed.sum_over_processes([self._sums()])
        number = sums[-1]
        mean = sums[:-1].view_as(self.bases) / number.clamp(min=1)
        moved = self.momentum * self.bases + (1 - self.momentum) * mean
        self.bases.copy_(torch.where(number > 0, moved, self.bases))
        self.pending = None

    def get_extra_state(self) -> Tensor:
        return self._sums().clone()

    def set_extra_state(self, state: Tensor | dict[str, Tensor | None]) -> None:
        self.pending = state["pending"] if isinstance(state, dict) else state  # dict: earlier ones

    @property
    def _precise(self) -> torch.dtype:
        """A sum of many parts, or a count above 256, needs more bits than half precision has."""
        return torch.promote_types(self.bases.dtype, torch.float32)

    def _sums(self) -> Tensor:
        if self.pending is None:
            return self.bases.new_zeros(self.bases.numel() + 1, dtype=self._precise)
        return self.pending.to(self.bases.device, self._precise)
