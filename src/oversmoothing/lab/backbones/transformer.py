"""Random transformers without MLPs (Ali et al., Centered Self-Attention Layers, Sec. 4.1).

.. math:: S(X) = after(inside(M V, V)),  M = softmax(Q Kᵀ/√d),  Q, K, V = X W_Q, X W_K, X W_V

or ``S(X) = after(instead(X))``. Nothing is trained; the first state X₁ is the identity. N divides
rows by their norm. A block makes a layer of S and N:

- Pre-LN: ``X ← S(N(X)) + X``, output ``N(X)``, as in version 1 of the paper. The later version
  prints ``S(N(X; W) + X)``, a bracket out of place.
- Post-LN: ``X ← N(S(X) + X)``, output ``X``.
- ResiDual: ``R ← R + S(X), X ← N(S(X) + X)``, output ``N(R) + X``, R₁ = X₁.
- plain: ``X ← S(X)``, output ``X``, as in Propositions 1 and 2.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.sites import SITES, Chain, Factory, Sites
from oversmoothing.aggregators.base import PLAIN
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.options import check_positive
from oversmoothing.lab.backbones.per_seed import PerSeed, Seeds

QKV = tuple[Tensor | None, Tensor | None, Tensor | None]  # None is the identity


class RandomTransformer:
    """The transformers of several seeds, each in several copies that differ in an aggregator only.

    The weights of a seed depend on the seed and the layer. They do not depend on the device, the
    type, the copies or the other seeds.

    Args:
        aggregators: factories, applied in their order at their sites.
        seeds: one for each network; seeds its weights.
        block: Pre-LN, Post-LN or ResiDual as in the paper, or plain ``X ← S(X)``.
        weights: W_Q, W_K, W_V = I, or entries from U[0, 1] or N(0, weight_std²).
        weight_std: standard deviation of normal weights; ``fan_in`` is 1/√d.
        depth: number of layers L.
        num_tokens: n ≤ d; X₁ holds the first n rows of the d × d identity matrix.
        dim: d.
        shared: use the same weights in all layers, otherwise fresh ones.
        value: W_V is drawn like the others, or is the identity.
        copies: number of copies G; aggregators may hold a tensor (G, 1, 1), one value per copy.
        device: where to compute; weights are drawn on the CPU.
        dtype: type to compute in; weights are drawn in float64.

    Attributes:
        sites: the aggregators at ``inside``, ``after`` and ``instead``.

    Raises:
        InputError: an argument out of range, or aggregators that exclude each other.
    """

    def __init__(
        self,
        aggregators: list[Factory],
        seeds: list[int],
        block: Literal["pre_ln", "post_ln", "resi_dual", "plain"] = "pre_ln",
        weights: Literal["identity", "uniform", "normal"] = "uniform",
        weight_std: float | Literal["fan_in"] = 1.0,
        depth: int = 2000,
        num_tokens: int = 100,
        dim: int = 100,
        shared: bool = False,
        value: Literal["drawn", "identity"] = "drawn",
        copies: int = 1,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        check_positive(depth=depth, num_tokens=num_tokens, dim=dim)
        check_choice("backbone.block", block, BLOCKS)
        if num_tokens > dim:
            raise InputError(
                f"backbone.num_tokens: expected at most backbone.dim={dim}, got {num_tokens}; X₁ "
                "is the identity matrix, and further tokens would be zeros"
            )
        self.block = BLOCKS[block]
        self.depth, self.dim, self.device, self.dtype = depth, dim, device, dtype
        self.seeds = Seeds(seeds, torch.device("cpu"))
        self.sites = self._sites(aggregators)
        start = torch.eye(num_tokens, dim, dtype=dtype, device=device)
        self.state = (start.repeat(len(seeds), copies, 1, 1),) * self.block.parts
        self.layer, self.shared = 0, shared
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.weights = RandomWeights(self.generators, dim, weights, weight_std, shared, value)

    def _sites(self, factories: list[Factory]) -> nn.ModuleDict:
        """Builds the aggregators of every seed, in evaluation mode."""
        sites = Sites(factories, self.dim, "backbone transformer")
        seeds = self.seeds.seeds
        of_seed = [
            {site: sites.build(site, self.dim) for site in SITES} for _ in self.seeds.seeded()
        ]
        built = {
            site: Chain(PerSeed(copies, seeds) for copies in zip(*(own[site] for own in of_seed)))
            for site in SITES
        }
        return nn.ModuleDict(built).to(self.device, self.dtype).eval()

    @torch.no_grad()
    def outputs(self) -> Iterator[Tensor]:
        """Yields the output of the network after every further layer, up to ``depth``.

        Shapes: (S, G, n, d) for each layer.
        """
        while self.layer < self.depth:
            mixing = partial(self._mix, *self.weights.next_layer(self.device, self.dtype))
            self.state = self.block.layer(mixing, *self.state)
            self.layer += 1
            yield self.block.output(*self.state)

    def _mix(self, w_q: Tensor | None, w_k: Tensor | None, w_v: Tensor | None, x: Tensor) -> Tensor:
        """Computes S(X). Shapes: x (S, G, n, d) -> (S, G, n, d)."""
        if len(self.sites["instead"]):
            x = self.sites["instead"](x, PLAIN)
        else:
            q, k, v = (_times(x, w) for w in (w_q, w_k, w_v))
            mixed = F.scaled_dot_product_attention(q, k, v)  # scales by 1/√d
            x = self.sites["inside"](mixed, v, PLAIN)
        return self.sites["after"](x, PLAIN)

    def state_dict(self) -> dict:
        """Returns the state at the current layer, for ``load_state_dict``."""
        state = {"layer": self.layer, "generators": [g.get_state() for g in self.generators]}
        return state | {"state": [part.cpu() for part in self.state]}

    def load_state_dict(self, state: dict) -> None:
        """Continues at the layer where a network with the same arguments saved its state."""
        self.layer = state["layer"]
        for generator, own in zip(self.generators, state["generators"], strict=True):
            generator.set_state(own)
        self.state = tuple(part.to(self.device, self.dtype) for part in state["state"])


Mixing = Callable[[Tensor], Tensor]


def normalise_rows(x: Tensor) -> Tensor:
    """Divides every row of x (..., n, d) by its 2-norm, N in the paper; rows of zeros stay zero."""
    norm = x.norm(dim=-1, keepdim=True)
    return x / norm.masked_fill(norm == 0, 1.0)


class Block(NamedTuple):
    """A layer made of S, the residual sum and N; its state is X, or X and R, which start as X₁."""

    parts: int  # of the state
    layer: Callable[..., tuple[Tensor, ...]]
    output: Callable[..., Tensor]


def _resi_dual(S: Mixing, x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    s = S(x)
    return normalise_rows(s + x), r + s


BLOCKS = {
    "pre_ln": Block(1, lambda S, x: (S(normalise_rows(x)) + x,), normalise_rows),
    "post_ln": Block(1, lambda S, x: (normalise_rows(S(x) + x),), lambda x: x),
    "resi_dual": Block(2, _resi_dual, lambda x, r: normalise_rows(r) + x),
    "plain": Block(1, lambda S, x: (S(x),), lambda x: x),
}


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


def _times(x: Tensor, w: Tensor | None) -> Tensor:
    """Computes x @ w, one product per seed. Shapes: x (S, G, n, d), w (S, d, d); None is I."""
    return x if w is None else (x.flatten(1, 2) @ w).view(x.shape)
