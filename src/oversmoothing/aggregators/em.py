"""EM attention (EMANet, Li et al., ICCV 2019) and HEM (HEMNet, Song, Kim, Shim, AAAI 2021).

.. math:: γ = \\mathrm{softmax}_K(X μᵀ/σ²), \\quad
          μ ← (1 − η) μ + η \\, \\mathrm{diag}(1/N_k) γᵀ X, \\quad N_k = Σ_n γ_{nk}

T iterations start at the bases μ⁽⁰⁾. The result X̃ = γ⁽ᵀ⁾ μ⁽ᵀ⁾ represents every token by K Gaussian
means (HEMNet, Eq. 8, 13, 10). η = 1 is EM, η < 1 is HEM.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing import distributed
from oversmoothing.aggregators.base import PLAIN, Context, Instead
from oversmoothing.aggregators.checks import check_counts, number
from oversmoothing.aggregators.memory_layout import product, softmax
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError

EPS = 1e-6  # added to N_k and to the norms of bases, as in EMANet's code
Kernel = Literal["dot", "distance"]


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
        InputError: the momentum is not at least 0 and below 1.
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
        samples = sums[-1]
        mean = sums[:-1].view_as(self.bases) / samples.clamp(min=1)
        moved = self.momentum * self.bases + (1 - self.momentum) * mean
        self.bases.copy_(torch.where(samples > 0, moved, self.bases))
        self.pending = None

    def get_extra_state(self) -> Tensor:
        return self._sums().clone()

    def set_extra_state(self, state: Tensor) -> None:
        self.pending = state

    @property
    def _precise(self) -> torch.dtype:
        """A sum of many parts, or a count above 256, needs more bits than half precision has."""
        return torch.promote_types(self.bases.dtype, torch.float32)

    def _sums(self) -> Tensor:
        if self.pending is None:
            return self.bases.new_zeros(self.bases.numel() + 1, dtype=self._precise)
        return self.pending.to(self.bases.device, self._precise)


class EM(MovingBases):
    """Unrolled EM for a Gaussian mixture of the tokens; time and memory are linear in N.

    All samples start at the same bases μ⁽⁰⁾, and each sample then has its own. μ⁽⁰⁾ is not a
    parameter but a moving average of μ⁽ᵀ⁾, see ``MovingBases``. Prefix tokens take part. The
    computation is in float32 or wider.

    Args:
        dim: channels C.
        num_bases: K.
        iterations: T in training.
        eval_iterations: T in evaluation; None: as in training.
        step_size: η in (0, 1]; below 1, gradients have a path around the E-steps (HEM).
        temperature: σ²; ``sqrt_dim``: √C.
        kernel: ``dot``: exp(xᵀμ/σ²), as in the papers' code. ``distance``: exp(−‖x − μ‖²/2σ²), the
            posterior of N(μ, σ²I), whose E-step never decreases the ELBO. HEMNet's Eq. 7 prints it
            without the 2, which is this kernel with half the σ².
        l2: normalise the bases to norm 1 after every step, as EMANet does.
        gradients: whether gradients flow through the iterations; EMANet stops them.
        momentum: weight of the old μ⁽⁰⁾ in the moving average, in [0, 1).

    Raises:
        InputError: an option is out of range, or there are fewer tokens than bases in training.
            Evaluation allows this, since small images at small scales have few tokens.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    relu_after = True

    def __init__(
        self,
        dim: int,
        num_bases: int = 64,
        iterations: int = 3,
        eval_iterations: int | None = None,
        step_size: float = 1.0,
        temperature: float | Literal["sqrt_dim"] = 1.0,
        kernel: Kernel = "dot",
        l2: bool = True,
        gradients: bool = False,
        momentum: float = 0.9,
    ) -> None:
        eval_iterations = iterations if eval_iterations is None else eval_iterations
        check_counts(dim=dim, num_bases=num_bases)
        check_counts(iterations=iterations, eval_iterations=eval_iterations)
        _check_ranges(step_size, temperature, kernel)
        super().__init__(num_bases, dim, momentum)
        self.iterations, self.eval_iterations = iterations, eval_iterations
        self.step_size, self.kernel, self.l2 = step_size, kernel, l2
        self.variance = dim**0.5 if temperature == "sqrt_dim" else float(temperature)
        self.passes_gradient = gradients

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        T = self.iterations if self.training else self.eval_iterations
        learns = torch.is_grad_enabled()
        with (
            torch.autocast(x.device.type, enabled=False),
            torch.set_grad_enabled(learns and self.passes_gradient),
        ):
            for iteration in self._iterate(x, T):
                last = iteration  # the others need no memory
            x_tilde = product(last.gamma, last.mu)
        if self.training and learns:
            self.remember(last.mu.detach())
        return x_tilde.to(x.dtype)

    @torch.no_grad()
    def trace(self, x: Tensor, iterations: int | None = None) -> "list[Iteration]":
        """Returns what every iteration computes from x, without gradients.

        The moving average of the bases is not updated.

        Args:
            x: (..., N, C).
            iterations: T; None: as in evaluation.
        """
        with torch.autocast(x.device.type, enabled=False):
            T = self.eval_iterations if iterations is None else iterations
            return list(self._iterate(x, T))

    def _iterate(self, x: Tensor, T: int) -> "Iterator[Iteration]":
        """Yields T iterations on x, computed in float32 or wider."""
        *lead, N, C = x.shape
        K = len(self.bases)
        if K > N and self.training:
            raise InputError(
                f"aggregator.num_bases: expected at most the number of tokens, {N}, got {K}; "
                "choose fewer bases, larger images, a smaller output stride or longer texts"
            )
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        mu = self.bases.to(x.dtype).expand(*lead, K, C)
        for _ in range(T):
            gamma = self.e_step(x, mu)
            before, mu = mu, self.n_step(x, gamma, mu)
            yield Iteration(before, gamma, mu)

    def e_step(self, x: Tensor, mu: Tensor) -> Tensor:
        """Computes the responsibilities γ. Shapes: x (..., N, C), mu (..., K, C) -> (..., N, K)."""
        scores = product(x, mu.mT)
        if self.kernel == "distance":  # ‖x‖² cancels in the softmax
            scores = scores - mu.square().sum(dim=-1).unsqueeze(-2) / 2
        return softmax(scores if self.variance == 1 else scores / self.variance, dim=-1)

    def n_step(self, x: Tensor, gamma: Tensor, mu: Tensor) -> Tensor:
        """Takes a Newton step on the bases (HEMNet, Eq. 13), in the shape of mu."""
        N_k = gamma.sum(dim=-2).unsqueeze(-1)
        mean = product(x.mT, gamma).mT / (EPS + N_k)
        mu = mean if self.step_size == 1 else mu.lerp(mean, self.step_size)
        if self.l2:
            mu = mu / (EPS + torch.linalg.vector_norm(mu, dim=-1, keepdim=True))
        return mu

    def extra_repr(self) -> str:
        return f"num_bases={len(self.bases)}, step_size={self.step_size}, variance={self.variance}"


class Iteration(NamedTuple):
    """An E-step and an N-step (Newton step) on N tokens of C channels with K bases.

    Args:
        before: the bases μ that the E-step uses, (..., K, C).
        gamma: the responsibilities γ, (..., N, K); rows sum to 1.
        mu: the bases after the N-step, (..., K, C).
    """

    before: Tensor
    gamma: Tensor
    mu: Tensor


def _check_ranges(step_size: float, temperature: float | str, kernel: str) -> None:
    if not 0 < number(step_size) <= 1:
        raise InputError(
            f"aggregator.step_size: expected above 0 and at most 1, got {step_size!r}; 1 is EM"
        )
    if temperature != "sqrt_dim" and not number(temperature) > 0:
        raise InputError(
            f"aggregator.temperature: expected a number above 0 or sqrt_dim, got {temperature!r}"
        )
    check_choice("aggregator.kernel", kernel, get_args(Kernel))
