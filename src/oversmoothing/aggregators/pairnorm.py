"""PairNorm (Zhao, Akoglu: PairNorm: Tackling Oversmoothing in GNNs, ICLR 2020, Eq. 10–11)."""

from typing import Literal

from torch import Tensor

from oversmoothing.aggregators.base import After, Context
from oversmoothing.errors import InputError


class PairNorm(After):
    """Keeps the total pairwise distance of the tokens constant.

    With x̄ the mean token:

    - ``PN``: xᶜ = x − x̄, then s·xᶜ / sqrt(eps + mean_i ‖xᶜ_i‖²);
    - ``PN-SI``: xᶜ = x − x̄, then every row to norm s: s·xᶜ_i / sqrt(eps + ‖xᶜ_i‖²);
    - ``PN-SCS``: s·x_i / sqrt(eps + ‖x_i‖²) − x̄, the mean of the input.

    Args:
        mode: which of the three.
        scale: s, above 0.
        eps: inside the root, as in the authors' code.

    Raises:
        InputError: scale not above 0.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(
        self,
        mode: Literal["PN", "PN-SI", "PN-SCS"] = "PN",
        scale: float = 1.0,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if not scale > 0:
            raise InputError(f"aggregator.scale: PairNorm needs a scale above 0, got {scale}")
        self.mode = mode
        self.scale = scale
        self.eps = eps

    def forward(self, x: Tensor, context: Context) -> Tensor:
        mean = x.mean(dim=-2, keepdim=True)
        if self.mode == "PN-SCS":
            return self.scale * x / self._norm(x) - mean
        centered = x - mean
        norm = self._norm(centered) if self.mode == "PN-SI" else self._mean_norm(centered)
        return self.scale * centered / norm

    def _norm(self, x: Tensor) -> Tensor:
        """Root of the squared row norms, (..., N, 1)."""
        return (self.eps + x.square().sum(dim=-1, keepdim=True)).sqrt()

    def _mean_norm(self, x: Tensor) -> Tensor:
        """Root of the mean squared row norm, (..., 1, 1)."""
        squared = x.square().sum(dim=-1, keepdim=True)
        return (self.eps + squared.mean(dim=-2, keepdim=True)).sqrt()
