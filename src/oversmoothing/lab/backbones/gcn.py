"""Graph convolutional networks of any depth: GCN, JKNet and GCNII.

There is no site instead, since a network without the adjacency would not use the graph.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from oversmoothing.adapters.sites import Factory
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.engine import Engine, Layers, times
from oversmoothing.lab.backbones.options import BRANCHES, Branch, check_each


class Convolutions(Engine):
    """Base class of networks of plain graph convolutions."""

    def convolve(self, h: Tensor | None, layer: int) -> Tensor:
        """Convolves dropout(relu(h)), or the input features if h is None; aggregates inside."""
        weight = self.weight(layer)
        v = self.read(weight) if h is None else self.times(h, weight)
        v, bias = self.parts(v, layer)
        return self.mixed(v, layer, bias)

    def weight(self, number: int) -> Tensor:
        """Returns W of a convolution, or W and W' side by side: one product serves both."""
        weight = self.weights[number]
        return torch.cat([weight, self.linear[number]], dim=-1) if self.linear else weight

    def parts(self, v: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Splits the product with ``weight(number)``: what the convolution mixes, what it adds."""
        if not self.linear:
            return v, self.biases[number]
        v, own = (part.contiguous() for part in v.chunk(2, dim=-1))
        return v, self.biases[number] + own


class GCN(Convolutions):
    """Graph convolutional networks (Kipf, Welling, ICLR 2017; ContraNorm's DeepGCN).

    .. math:: h ← relu(after(inside(Ã · dropout(h) W, dropout(h) W) + b))

    for all layers but the last, whose output is ``inside(…) + b``. Ã is the normalised adjacency.
    With ``linear`` and ``readout`` it is the tuned GCN of Luo et al. (NeurIPS 2024,
    arXiv:2406.08993), whose layers compute ``relu(after(conv(dropout(h)) + dropout(h) W'))``.

    Args:
        residual: length of the residual connections in layers: after every ``residual`` layers, the
            features from ``residual`` layers before are added; 0: none.
        branch: ``plain``: h + f(h) with the layers f in between. ``rezero``: h + α f(h) with a
            learned α, from 0; ``layerscale``: an α for each channel, from 1e-4 (``ReZero``).
        linear: add a linear map W' of its input to each convolution.
        readout: a linear layer, which does not count in ``depth``, returns the logits.
        others: see ``Engine``.
    """

    @dataclass(frozen=True, eq=False)
    class Options(Engine.Options):
        residual: int = 0
        branch: Branch = "plain"
        linear: bool = False
        readout: bool = False

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.residual < 0:
                raise InputError(
                    f"backbone.residual: expected 0 (none) or more layers, got {self.residual}"
                )
            if self.branch != "plain" and not self.residual:
                raise InputError(
                    "backbone.branch: only residual connections have branches; set "
                    "backbone.residual=1, or leave branch=plain"
                )

    def layers(self, F: int, K: int) -> Layers:
        depth, width, linear = self.options.depth, self.options.hidden, self.options.linear
        if self.options.readout:
            return Layers([*pairwise([F, *[width] * depth])], dense=[(width, K)], linear=linear)
        return Layers([*pairwise([F, *[width] * (depth - 1), K])], linear=linear)

    def _draw(self, aggregators: list[Factory], layers: Layers) -> None:
        super()._draw(aggregators, layers)
        if self._scales:
            start, per_channel = BRANCHES[self.options.branch]
            shape = (len(self.seeds.seeds), 1, self.options.hidden if per_channel else 1)
            sums = range(self.options.residual, self._hidden, self.options.residual)
            self.branches = nn.ParameterList(
                torch.full(shape, start, device=self.seeds.device) for _ in sums
            )

    @property
    def _hidden(self) -> int:
        """Number of layers that aggregators and ReLU follow."""
        return self.options.depth - (not self.options.readout)

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's output to ``hidden``."""
        self.renew()
        h, skipped = None, 0.0
        residual, readout = self.options.residual, self.options.readout
        for layer in range(self.options.depth):
            h = self.convolve(h, layer)
            if inner := layer < self._hidden:
                h = self.at("after", layer, h)
                if residual and layer % residual == 0:
                    h = skipped = self._scaled(h.relu(), layer) + skipped
                elif self._scales:
                    h = h.relu()
            if hidden is not None:
                hidden.append(self._features(h) if inner else h)
        return self.dense[0](self.seeds.dropout(self._features(h), self.rate)) if readout else h

    @property
    def _scales(self) -> bool:
        """Whether branches have factors, by which sums of features may be negative."""
        return self.options.branch != "plain"

    def _features(self, h: Tensor) -> Tensor:
        """Applies the ReLU of a hidden layer, unless ``forward`` has done so."""
        return h if self._scales else h.relu()

    def times(self, h: Tensor, weight: Tensor) -> Tensor:
        """As that of ``Engine``, but features that may be negative pass without a ReLU."""
        if not self._scales:
            return super().times(h, weight)
        return times(self.seeds.dropout(h, self.rate), weight)

    def _scaled(self, h: Tensor, layer: int) -> Tensor:
        """Multiplies a branch by its α; the first layer has no features to be added to."""
        plain = not self._scales or layer == 0
        return h if plain else self.branches[layer // self.options.residual - 1] * h


class JKNet(Convolutions):
    """Jumping knowledge networks (Xu et al., ICML 2018, arXiv:1806.03536).

    They are GCNs whose last, linear layer reads the outputs of all graph convolutions; it does not
    count in ``depth``.

    Args:
        jumping: ``cat``: the outputs side by side; ``max``: their maximum in each channel.
        others: see ``Engine``.
    """

    @dataclass(frozen=True, eq=False)
    class Options(Engine.Options):
        jumping: Literal["cat", "max"] = "cat"

    def layers(self, F: int, K: int) -> Layers:
        depth, hidden = self.options.depth, self.options.hidden
        width = hidden * depth if self.options.jumping == "cat" else hidden
        return Layers([*pairwise([F, *[hidden] * depth])], dense=[(width, K)])

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's output to ``hidden``."""
        self.renew()
        h, outputs = None, []
        for layer in range(self.options.depth):
            h = self.at("after", layer, self.convolve(h, layer))
            outputs.append(h.relu())
        if hidden is not None:
            hidden += outputs
        if self.options.jumping == "cat":
            joined = torch.cat(outputs, dim=-1)
        else:
            joined = torch.stack(outputs).amax(dim=0)
        return self.dense[0](self.seeds.dropout(joined, self.rate))


class GCNII(Engine):
    """GCNII: initial residual and identity map (Chen et al., ICML 2020, arXiv:2007.02133, Eq. 5).

    .. math::
        h ← relu(after(((1 − α) Ãh + α h_0) ((1 − β_l) I + β_l W_l))), \\quad β_l = \\log(λ/l + 1)

    where h_0 = relu(x W + b), with dropout before every product with weights. Aggregators inside
    act on Ãh, with the values h. The linear layers before and after the convolutions do not count
    in ``depth``; convolutions have no bias.

    Args:
        alpha: α, the share of h_0 in every layer, 0 to 1.
        lam: λ, above 0, which sets the weight of W_l relative to the identity. Tensors (S, 1, 1)
            have one α or λ for each network.
        others: see ``Engine``.
    """

    bias = False

    @dataclass(frozen=True, eq=False)
    class Options(Engine.Options):
        alpha: float | Tensor = 0.1
        lam: float | Tensor = 0.5

        def __post_init__(self) -> None:
            super().__post_init__()
            check_each("alpha", self.alpha, "0 to 1", lambda own: (own >= 0) & (own <= 1))
            check_each("lam", self.lam, "a number above 0", lambda own: own > 0)

    def layers(self, F: int, K: int) -> Layers:
        depth, hidden = self.options.depth, self.options.hidden
        return Layers([(hidden, hidden)] * depth, dense=[(F, hidden), (hidden, K)])

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's output to ``hidden``."""
        self.renew()
        h = h_0 = self.read_in()
        for layer in range(self.options.depth):
            h = self.at("after", layer, self._convolve(h, h_0, layer)).relu()
            if hidden is not None:
                hidden.append(h)
        return self.dense[1](self.seeds.dropout(h, self.rate))

    def _convolve(self, h: Tensor, h_0: Tensor, layer: int) -> Tensor:
        alpha, beta = self.options.alpha, self.options.lam / (layer + 1) + 1
        beta = beta.log() if torch.is_tensor(beta) else math.log(beta)
        mixed = self.mixed(self.seeds.dropout(h, self.rate), layer)
        support = (1 - alpha) * mixed + alpha * h_0
        return (1 - beta) * support + beta * (support @ self.weights[layer])
