"""Random attention-only transformers (Ali et al.: Centered Self-Attention Layers, Sec. 4.1).

.. math:: S(X) = after(inside(M V, V)),  M = softmax(Q Kᵀ/√d),  Q, K, V = X W_Q, X W_K, X W_V

or ``S(X) = instead(X)``; nothing is trained. The first state X₁ is the identity.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator, Context, make, require_sites
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.backbones.per_seed import PerSeed, Seeds
from oversmoothing.backbones.random.blocks import BLOCKS
from oversmoothing.backbones.random.weights import RandomWeights, check_choice
from oversmoothing.errors import InputError

SITES = ("inside", "after", "instead")


class RandomTransformer:
    """Transformers of several seeds, each in several copies that differ in their aggregator alone.

    A seed's weights depend on the seed and the layer, not on device, type, copies or companions.

    Args:
        aggregators: factories; those inside and after act in their order.
        seeds: each seeds the weights of its own network.
        block: Pre-LN, Post-LN or ResiDual of the paper, or plain ``X ← S(X)`` (see ``blocks.py``).
        weights: W_Q, W_K, W_V = I, or entries from U[0, 1] or N(0, weight_std²).
        weight_std: standard deviation of normal weights; ``fan_in`` is 1/√d.
        depth: layers L.
        num_tokens: n.
        dim: d.
        shared: the same weights in all layers, else fresh ones.
        value: W_V drawn as the others, or the identity.
        copies: G; aggregators may hold a tensor (G, 1, 1), one value a copy.
        device: where to compute; weights are drawn on the CPU.
        dtype: to compute in; weights are drawn in float64.

    Raises:
        InputError: an argument out of range, or instead combined with inside or another instead.
    """

    def __init__(
        self,
        aggregators: list[Callable[..., Aggregator]],
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
        _check_sizes(depth=depth, num_tokens=num_tokens, dim=dim)
        check_choice("block", block, BLOCKS)
        self.block = BLOCKS[block]
        self.depth, self.dim, self.device, self.dtype = depth, dim, device, dtype
        self.seeds = Seeds(seeds, torch.device("cpu"))
        self.sites = self._sites(aggregators)
        start = torch.eye(num_tokens, dim, dtype=dtype, device=device)
        self.state = (start.repeat(len(seeds), copies, 1, 1),) * self.block.parts
        self.layer, self.shared = 0, shared
        generators = self.seeds.generators
        self.weights = RandomWeights(generators, dim, weights, weight_std, shared, value)

    def _sites(self, factories: list) -> dict[str, nn.ModuleList]:
        """Aggregators by site, one copy a seed where they have state, ready to evaluate."""
        of_seed = [[make(f, self.dim) for f in factories] for _ in self.seeds.seeded()]
        require_sites(of_seed[0], SITES, "transformer")
        of_seed = [[a for a in built if not isinstance(a, NoAggregator)] for built in of_seed]
        every = [PerSeed(list(copies)) for copies in zip(*of_seed)]
        sites = {s: nn.ModuleList(a for a in every if a.site == s) for s in SITES}
        if len(sites["instead"]) > 1 or (sites["instead"] and sites["inside"]):
            raise InputError(
                "aggregator: one that acts instead of the mixing leaves no mixing to another one "
                "inside or instead of it; drop one of the two"
            )
        return {s: a.to(self.device, self.dtype).eval() for s, a in sites.items()}

    @torch.no_grad()
    def outputs(self) -> Iterator[Tensor]:
        """Yields the network's output after every further layer, up to ``depth``.

        Shapes: (S, G, n, d) a layer.
        """
        while self.layer < self.depth:
            mixing = partial(self._mix, *self.weights.next_layer(self.device, self.dtype))
            self.state = self.block.layer(mixing, *self.state)
            self.layer += 1
            yield self.block.output(*self.state)

    def _mix(self, w_q: Tensor | None, w_k: Tensor | None, w_v: Tensor | None, x: Tensor) -> Tensor:
        """S(X) for x (S, G, n, d)."""
        context = Context()
        for aggregator in self.sites["instead"]:
            x = aggregator(x, context)
        if not self.sites["instead"]:
            q, k, v = (_times(x, w) for w in (w_q, w_k, w_v))
            x = F.scaled_dot_product_attention(q, k, v)  # scales by 1/√d
            for aggregator in self.sites["inside"]:
                x = aggregator(x, v, context)
        for aggregator in self.sites["after"]:
            x = aggregator(x, context)
        return x

    def state_dict(self) -> dict:
        """All that :meth:`load_state_dict` needs to continue from the present layer."""
        state = {"layer": self.layer, "generators": self.seeds.get_extra_state()}
        return state | {"state": [part.cpu() for part in self.state]}

    def load_state_dict(self, state: dict) -> None:
        """Continues where a :meth:`state_dict` of the same arguments was taken."""
        self.layer = state["layer"]
        self.seeds.set_extra_state(state["generators"])
        self.state = tuple(part.to(self.device, self.dtype) for part in state["state"])


def _times(x: Tensor, w: Tensor | None) -> Tensor:
    """x (S, G, n, d) times each seed's w (S, d, d), as one product a seed."""
    return x if w is None else (x.flatten(1, 2) @ w).view(x.shape)


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"backbone.{name}: expected 1 or more, got {size}")
