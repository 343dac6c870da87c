"""The one interface: where an aggregator acts, and what it is told.

A backbone mixes tokens as ``mixed = M v``: M (N, N) is a softmax attention or a normalised
adjacency, v (..., N, C) are the values. An aggregator acts at one of three sites:

- ``Inside``: on ``mixed`` and ``v``, per head in a ViT (centered attention);
- ``After``: on the mixed tokens (LayerNorm, PairNorm, ContraNorm);
- ``Instead``: in the place of the mixing (EM, HEM, external attention).

Every aggregator accepts any leading dimensions and treats them independently, unless it has
parameters, which belong to one network: backbones that train several seeds at once hold one
copy a seed.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Context:
    """What a backbone knows about its mixing.

    Args:
        prefix: leading tokens that are no patches (CLS, distillation).
        row_sum: row sums of M, (N, 1); None where they are all 1.
        edges: (2, E) row and column of every entry of a sparse M, self-loops included; None
            where M is dense.
        num_nodes: N; needed with ``edges``.
    """

    prefix: int = 0
    row_sum: Tensor | None = None
    edges: Tensor | None = None
    num_nodes: int | None = None

    @cached_property
    def strangers(self) -> Tensor | None:
        """Boolean (N, N): True where two nodes are neither the same nor neighbours."""
        if self.edges is None:
            return None
        mask = torch.ones(
            self.num_nodes, self.num_nodes, dtype=torch.bool, device=self.edges.device
        )
        mask[self.edges[0], self.edges[1]] = False
        return mask


class Aggregator(nn.Module):
    """Common to all sites."""

    site: ClassVar[str]

    def advance(self, step: int) -> None:
        """Told by the training loop before optimisation step ``step`` (0-based), for warm-ups."""

    def settle(self) -> None:
        """Told by the training loop after each optimisation step, for moving averages."""


class Inside(Aggregator):
    """Acts inside the mixing."""

    site = "inside"

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        """Returns what stands for ``mixed``.

        Shapes: mixed (..., N, C), v (..., N, C) -> (..., N, C).
        """
        raise NotImplementedError


class After(Aggregator):
    """Acts on the mixed tokens."""

    site = "after"

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x (..., N, C) -> (..., N, C)."""
        raise NotImplementedError


class Instead(Aggregator):
    """Acts in the place of the mixing.

    Attributes:
        passes_gradient: whether a gradient reaches x; if not, hosts freeze what feeds x alone.
        relu_after: whether hosts with a convolution behind it put a ReLU before that.
    """

    site = "instead"
    passes_gradient: bool = True
    relu_after: bool = False

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x (..., N, C) -> (..., N, C)."""
        raise NotImplementedError


def advance(model: nn.Module, step: int) -> None:
    """Tells every aggregator of a model which training step comes next."""
    for module in model.modules():
        if isinstance(module, Aggregator):
            module.advance(step)


def settle(model: nn.Module) -> None:
    """Tells every aggregator of a model that a training step is done."""
    for module in model.modules():
        if isinstance(module, Aggregator):
            module.settle()


def require_sites(aggregators: list[Aggregator], sites: tuple[str, ...], host: str) -> None:
    """Refuses aggregators that a backbone has no place for.

    Raises:
        InputError: naming the aggregator, its site, and the sites that ``host`` offers.
    """
    for aggregator in aggregators:
        if aggregator.site not in sites:
            name, where = type(aggregator).__name__, aggregator.site
            where = "instead of" if where == "instead" else where
            raise InputError(
                f"aggregator {name} acts {where} the mixing, and backbone {host} offers "
                f"only: {', '.join(sites)}; choose an aggregator of one of these sites"
            )


def make(factory: Callable[..., Aggregator], dim: int) -> Aggregator:
    """Builds an aggregator for tokens of ``dim`` channels; ``dim`` goes only to who asks for it."""
    wants_dim = "dim" in inspect.signature(factory).parameters
    return factory(dim=dim) if wants_dim else factory()
