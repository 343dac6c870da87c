"""EM attention (EMANet, Li et al., ICCV 2019) and HEM (HEMNet, Song, Kim, Shim, AAAI 2021).

.. math:: γ = \\mathrm{softmax}_K(X μᵀ/σ²), \\quad
          μ ← (1 − η) μ + η \\, \\mathrm{diag}(1/N_k) γᵀ X, \\quad N_k = Σ_n γ_{nk}

T iterations start at the bases μ⁽⁰⁾. The result X̃ = γ⁽ᵀ⁾ μ⁽ᵀ⁾ represents every token by K Gaussian
means (HEMNet, Eq. 8, 13, 10). η = 1 is EM, η < 1 is HEM.
"""

import contextlib
from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context
from oversmoothing.aggregators.checks import check_counts, number
from oversmoothing.aggregators.em_bases import MovingBases
from oversmoothing.aggregators.em_iteration import Iteration, branch
from oversmoothing.aggregators.memory_layout import product, softmax
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError

EPS = 1e-6  # EMANet's, of both normalisations
Kernel = Literal["dot", "distance"]


class EM(MovingBases):
    """Unrolled EM for a Gaussian mixture of the tokens; time and memory are linear in N.

    All samples start at the same bases μ⁽⁰⁾, and each sample then has its own. μ⁽⁰⁾ is not a
    parameter but a moving average of μ⁽ᵀ⁾, see ``MovingBases``. Prefix tokens take part. Computed
    in float32 or wider.

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
        InputError: an option out of range; or, in training, fewer tokens than bases. In evaluation
            fewer tokens are allowed, since small scales of small images have few.

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
        self.record: list[Iteration] | None = None

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        T = self.iterations if self.training else self.eval_iterations
        learns = torch.is_grad_enabled()
        with (
            torch.autocast(x.device.type, enabled=False),
            torch.set_grad_enabled(learns and self.passes_gradient),
        ):
            for last in self._iterate(x, T):
                if self.record is not None:
                    self.record.append(last)
            x_tilde = product(last.gamma, last.mu)
        if self.training and learns:
            self.remember(last.mu.detach())
        return x_tilde.to(x.dtype)

    @torch.no_grad()
    def trace(self, x: Tensor, iterations: int | None = None) -> list[Iteration]:
        """Returns what every iteration computes from x, without gradients.

        The moving average of the bases is not updated.

        Args:
            x: (..., N, C).
            iterations: T; None: as in evaluation.
        """
        with torch.autocast(x.device.type, enabled=False):
            T = self.eval_iterations if iterations is None else iterations
            return list(self._iterate(x, T))

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Iteration]]:
        """Context in which forward passes append their iterations to the list that it yields.

        After a backward pass, ``input_gradients`` of that list gives the gradients that flowed to
        x through each step (HEMNet, Fig. 3).
        """
        record: list[Iteration] = []
        self.record = record
        try:
            yield record
        finally:
            self.record = None

    def _iterate(self, x: Tensor, T: int) -> Iterator[Iteration]:
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
            x_e, x_n = (x, x) if self.record is None else (branch(x), branch(x))
            gamma = self._e_step(x_e, mu)
            before, mu = mu, self._n_step(x_n, gamma, mu)
            yield Iteration(x_e, x_n, before, gamma, mu)

    def _e_step(self, x: Tensor, mu: Tensor) -> Tensor:
        """Computes the responsibilities γ. Shapes: x (..., N, C), mu (..., K, C) -> (..., N, K)."""
        scores = product(x, mu.mT)
        if self.kernel == "distance":  # ‖x‖² cancels in the softmax
            scores = scores - mu.square().sum(dim=-1).unsqueeze(-2) / 2
        return softmax(scores if self.variance == 1 else scores / self.variance, dim=-1)

    def _n_step(self, x: Tensor, gamma: Tensor, mu: Tensor) -> Tensor:
        """Takes a Newton step on the bases (HEMNet, Eq. 13). Shapes: -> (..., K, C)."""
        N_k = gamma.sum(dim=-2).unsqueeze(-1)
        mean = product(x.mT, gamma).mT / (EPS + N_k)
        mu = mean if self.step_size == 1 else mu.lerp(mean, self.step_size)
        if self.l2:
            mu = mu / (EPS + torch.linalg.vector_norm(mu, dim=-1, keepdim=True))
        return mu

    def extra_repr(self) -> str:
        return f"num_bases={len(self.bases)}, step_size={self.step_size}, variance={self.variance}"


@contextlib.contextmanager
def iterating(network: nn.Module, T: int | None) -> Iterator[None]:
    """Context in which a network's EM aggregators evaluate with T iterations; None: their own."""
    own = {module: module.eval_iterations for module in network.modules() if isinstance(module, EM)}
    for module in own:
        module.eval_iterations = T or module.eval_iterations
    try:
        yield
    finally:
        for module, iterations in own.items():
            module.eval_iterations = iterations


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
