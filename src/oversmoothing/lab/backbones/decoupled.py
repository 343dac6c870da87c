"""Networks that propagate after their MLP, so that depth costs no weights: GPRGNN and DAGNN.

.. math:: H_0 = \\mathrm{MLP}(X), \\quad H_k = Ã H_{k-1}, \\quad k = 1 … K

Both return a sum of all H_k with learned weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from oversmoothing.adapters.sites import Factory
from oversmoothing.lab.backbones.engine import Engine, Layers
from oversmoothing.lab.backbones.options import check_each


class Decoupled(Engine):
    """Base class: linear(F, hidden), ReLU, linear(hidden, K classes), then ``depth`` propagations.

    Aggregators inside act on Ã H, with the values H, those after on the result; their channels are
    the classes. ``init`` is that of the two linear layers.
    """

    @dataclass(frozen=True, eq=False)
    class Options(Engine.Options):
        depth: int = 10

    def hops(self, h: Tensor, hidden: list[Tensor] | None) -> Iterator[Tensor]:
        """Yields H_1, …, H_K from h = H_0; appends each to ``hidden``."""
        for layer in range(self.options.depth):
            h = self.at("after", layer, self.mixed(h, layer))
            if hidden is not None:
                hidden.append(h)
            yield h

    def logits(self) -> Tensor:
        """Returns H_0 (S, N, num_classes), with dropout before both linear layers."""
        self.renew()
        return self.dense[1](self.seeds.dropout(self.read_in(), self.rate))


class GPRGNN(Decoupled):
    """Generalized PageRank network (Chien et al., ICLR 2021, arXiv:2006.07988).

    .. math:: Z = \\sum_{k=0}^K γ_k H_k

    with γ_k learned, also below 0. They start as those of personalised PageRank, α (1 − α)^k for
    k < K and (1 − α)^K, with which the network is APPNP (Klicpera et al., ICLR 2019). The authors'
    code decays the weights of the MLP only (``trainer.weight_decay=0
    trainer.dense_weight_decay=5e-4``).

    Args:
        depth: propagations K.
        dropout: rate before the two linear layers and before the first propagation.
        adjacency: the authors': symmetric.
        alpha: α, 0 to 1. A tensor (S, 1, 1) has one for each network.
        others: see ``Engine``.
    """

    @dataclass(frozen=True, eq=False)
    class Options(Decoupled.Options):
        alpha: float | Tensor = 0.1

        def __post_init__(self) -> None:
            super().__post_init__()
            check_each("alpha", self.alpha, "0 to 1", lambda own: (own >= 0) & (own <= 1))

    def layers(self, F: int, K: int) -> Layers:
        depth, hidden = self.options.depth, self.options.hidden
        dense = [(F, hidden), (hidden, K)]
        return Layers([], dense, mixings=[K] * depth, dropped=[hidden, K])

    def _draw(self, aggregators: list[Factory], layers: Layers) -> None:
        super()._draw(aggregators, layers)
        depth, dtype = self.options.depth, torch.get_default_dtype()
        alpha = torch.as_tensor(self.options.alpha, dtype=dtype).reshape(-1, 1)
        gamma = (1 - alpha) ** torch.arange(depth + 1, device=alpha.device)
        gamma[:, :depth] *= alpha
        gamma = gamma.expand(len(self.seeds.seeds), -1).clone()
        self.gamma = nn.Parameter(gamma.to(self.seeds.device))

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every H_k from H_1 to ``hidden``."""
        first, *gammas = self.gamma[..., None, None].unbind(dim=1)
        start = self.seeds.dropout(self.logits(), self.rate)
        z = first * start
        for gamma, h in zip(gammas, self.hops(start, hidden)):
            z = z + gamma * h
        return z


class DAGNN(Decoupled):
    """Deep adaptive graph network (Liu et al., KDD 2020, arXiv:2007.09296).

    .. math:: Z = \\sum_{k=0}^K s_k ⊙ H_k, \\quad s_k = σ(H_k u + b)

    Each node weighs each of its hops by s_k in (0, 1), with u and b learned and shared by all hops.

    Args:
        depth: propagations K.
        dropout: rate before the two linear layers.
        adjacency: the authors': symmetric.
        others: see ``Engine``.
    """

    def layers(self, F: int, K: int) -> Layers:
        depth, hidden = self.options.depth, self.options.hidden
        dense = [(F, hidden), (hidden, K), (K, 1)]
        return Layers([], dense, mixings=[K] * depth, dropped=[hidden])

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every H_k from H_1 to ``hidden``."""
        start = self.logits()
        z = self._retained(start)
        for h in self.hops(start, hidden):
            z = z + self._retained(h)
        return z

    def _retained(self, h: Tensor) -> Tensor:
        return self.dense[2](h).sigmoid() * h
