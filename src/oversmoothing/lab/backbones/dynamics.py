"""Networks whose layers are steps of a differential equation: GraphCON and G².

.. math:: \\mathrm{conv}(X) = \\mathrm{after}(\\mathrm{inside}(Ã X W, X W) + b)

Both have a linear layer and ReLU before the first graph convolution and a linear layer after the
last, which do not count in ``depth``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oversmoothing.adapters.sites import Factory
from oversmoothing.lab.backbones.engine import Engine, Layers, times
from oversmoothing.lab.backbones.gcn import Convolutions
from oversmoothing.lab.backbones.options import check_each
from oversmoothing.lab.backbones.sparse import Adjacency, SparseMatrix


class Dynamics(Convolutions):
    """Base class of both networks.

    Args:
        share_weights: all layers have the same weights, as in the authors' codes.
        linear: add a linear map X W' of its input to each convolution.
        others: see ``Engine``.
    """

    @dataclass(frozen=True, eq=False)
    class Options(Engine.Options):
        share_weights: bool = True
        linear: bool = False

    def of(self, F: int, K: int, convolutions: int, dropouts: int) -> Layers:
        """Returns the layers.

        Args:
            convolutions: number of convolutions in a layer.
            dropouts: number of dropouts after that of the input features.
        """
        depth, hidden = self.options.depth, self.options.hidden
        different = convolutions * (1 if self.options.share_weights else depth)
        return Layers(
            [(hidden, hidden)] * different,
            dense=[(F, hidden), (hidden, K)],
            linear=self.options.linear,
            mixings=[hidden] * depth,
            dropped=[hidden] * dropouts,
        )

    def convolved(self, x: Tensor, layer: int) -> Tensor:
        """Computes relu(conv(X)) with the weights of a layer and its aggregators."""
        number = 0 if self.options.share_weights else layer
        v, bias = self.parts(times(x, self.weight(number)), number)
        return self.at("after", layer, self.mixed(v, layer, bias)).relu()


class GraphCON(Dynamics):
    """Graph-coupled oscillator network (Rusch et al., ICML 2022, arXiv:2202.02296).

    .. math::
        Y ← Y + Δt (\\mathrm{relu}(\\mathrm{conv}(X)) − γ X − α Y), \\quad X ← X + Δt Y

    from X = Y = relu(x W + b): steps of X'' = relu(conv(X)) − γ X − α X'. With Δt = γ = α = 1, the
    default of the authors' code, X ← relu(conv(X)), so the network is a plain GCN. Here dropout
    acts before every product with weights; in their code it acts on X and Y after every layer.

    Args:
        dt: Δt, above 0. Like γ and α, a tensor (S, 1, 1) has one for each network.
        gamma: γ, which pulls X to 0, 0 or more.
        alpha: α, which damps Y, 0 or more.
        others: see ``Dynamics``.
    """

    @dataclass(frozen=True, eq=False)
    class Options(Dynamics.Options):
        dt: float | Tensor = 0.5
        gamma: float | Tensor = 1.0
        alpha: float | Tensor = 1.0

        def __post_init__(self) -> None:
            super().__post_init__()
            check_each("dt", self.dt, "a number above 0", lambda own: own > 0)
            check_each("gamma", self.gamma, "0 or more", lambda own: own >= 0)
            check_each("alpha", self.alpha, "0 or more", lambda own: own >= 0)

    def layers(self, F: int, K: int) -> Layers:
        return self.of(F, K, convolutions=1, dropouts=self.options.depth + 1)

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's X to ``hidden``."""
        self.renew()
        dt, gamma, alpha = self.options.dt, self.options.gamma, self.options.alpha
        x = y = self.read_in()
        for layer in range(self.options.depth):
            force = self.convolved(self.seeds.dropout(x, self.rate), layer)
            y = y + dt * (force - gamma * x - alpha * y)
            x = x + dt * y
            if hidden is not None:
                hidden.append(x)
        return self.dense[1](self.seeds.dropout(x, self.rate))


class G2(Dynamics):
    """Gradient gating, G² (Rusch et al., ICLR 2023, arXiv:2210.00513).

    .. math::
        X ← (1 − τ) ⊙ X + τ ⊙ \\mathrm{relu}(\\mathrm{conv}(X)), \\quad
        τ_{ik} = \\tanh\\Big(\\frac{1}{|N(i)|} \\sum_{j ∈ N(i)} |X̂_{ik} − X̂_{jk}|^p\\Big)

    with X̂ = relu(Ã X W_g + b_g). A node whose neighbours are alike keeps its features: where τ is 0
    in all nodes, the network is an MLP, where it is 1, a GCN. Small features close the gate, as
    row-normalised ones do with p = 2. The mean over the neighbours is that of the authors' code;
    edge weights, DropEdge and DropNode leave it alone. In a directed graph N(i) are the nodes whose
    messages i gets; in the code they are those that i sends to. Dropout acts before the two linear
    layers only.

    Args:
        p: exponent, 1 or more. A tensor (S, 1, 1) has one for each network.
        own_gate: the gate has its own W_g and b_g; otherwise X̂ = relu(conv(X)), the default of the
            authors' script.
        others: see ``Dynamics``.
    """

    @dataclass(frozen=True, eq=False)
    class Options(Dynamics.Options):
        p: float | Tensor = 2.0
        own_gate: bool = True

        def __post_init__(self) -> None:
            super().__post_init__()
            check_each("p", self.p, "1 or more", lambda own: own >= 1)

    def layers(self, F: int, K: int) -> Layers:
        return self.of(F, K, convolutions=1 + self.options.own_gate, dropouts=1)

    def _draw(self, aggregators: list[Factory], layers: Layers) -> None:
        super()._draw(aggregators, layers)
        self.neighbours = Neighbours(self.adjacency, len(self.seeds.seeds))

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, num_classes); appends every layer's X to ``hidden``."""
        self.renew()
        x = self.read_in()
        for layer in range(self.options.depth):
            update = self.convolved(x, layer)
            compared = self._gate(x, layer) if self.options.own_gate else update
            tau = self.neighbours.mean(
                self.neighbours.differences(compared).abs() ** self.options.p
            )
            x = x + tau.tanh() * (update - x)
            if hidden is not None:
                hidden.append(x)
        return self.dense[1](self.seeds.dropout(x, self.rate))

    def _gate(self, x: Tensor, layer: int) -> Tensor:
        """Computes X̂; the convolutions of gates follow those of the layers."""
        shared = self.options.share_weights
        number = 1 if shared else self.options.depth + layer
        v, bias = self.parts(times(x, self.weight(number)), number)
        return (self.mix(v) + bias).relu()


class Neighbours:
    """Differences of features along the edges of a graph, and means over a node's edges.

    Self-loops do not count; the mean of a node without neighbours is 0.

    Args:
        adjacency: of the graph, with E entries that are no self-loops.
        seeds: S.

    Attributes:
        differences: x_i − x_j on every entry (i, j): (S, N, C) -> (S, E, C).
        mean: over the entries of every row: (S, E, C) -> (S, N, C).
    """

    def __init__(self, adjacency: Adjacency, seeds: int) -> None:
        edges, N = adjacency.edges, adjacency.num_nodes
        rows, columns = edges[:, edges[0] != edges[1]]
        E, number = len(rows), torch.arange(len(rows), device=rows.device)
        share = 1 / rows.bincount(minlength=N)[rows]
        ones = torch.ones_like(share)
        ends = torch.stack([number.repeat(2), torch.cat([rows, columns])])
        signs = torch.cat([ones, -ones])
        self.differences = SparseMatrix(ends, (E, N), seeds).prepared(signs)
        self.mean = SparseMatrix(torch.stack([rows, number]), (N, E), seeds).prepared(share)
