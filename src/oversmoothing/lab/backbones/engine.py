"""The networks of several seeds on one graph, trained at once: the base of GCN, GCNII and others.

.. math:: h ← after(inside(Ã V, V)), \\quad V = dropout(relu(h)) W

with Ã of ``sparse.py``. The products compute their own gradients, for speed on a CPU.
"""

from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oversmoothing.adapters.sites import Factory, Sites, kind_of
from oversmoothing.aggregators.base import Aggregator, make
from oversmoothing.aggregators.checks import takes_kernels
from oversmoothing.lab.backbones.options import (
    Configured,
    GraphOptions,
    drawn_bias,
    drawn_weight,
)
from oversmoothing.lab.backbones.per_seed import PerSeed, Seeds
from oversmoothing.lab.backbones.sparse import Adjacency, SparseMatrix


class Layers(NamedTuple):
    """Input and output channels of all graph convolutions and linear layers.

    Args:
        convolutions: the graph convolutions.
        dense: linear layers before and after them. Without linear layers, the last convolution
            returns the logits, and no aggregators act after it.
        linear: each convolution has a linear map of its input beside it.
        mixings: channels of every product with Ã at which aggregators act; empty: the outputs of
            the convolutions.
        dropped: channels at every dropout after that of the input features, in the order of their
            use; None: the inputs of all convolutions and linear layers.
    """

    convolutions: list[tuple[int, int]]
    dense: Sequence[tuple[int, int]] = ()
    linear: bool = False
    mixings: Sequence[int] = ()
    dropped: Sequence[int] | None = None


class Engine(Configured):
    """The networks of several seeds, trained together; the seeds do not influence each other.

    Subclasses implement ``layers`` and ``forward``.

    Args:
        aggregators: factories, applied in their order at their sites.
        x: node features, dense or CSR, (N, F).
        edges: row and column of every entry of A, (2, E), without the self-loops that are added.
        num_classes: number of outputs K.
        seeds: one for each network; seeds its weights and its dropout.
        weights: of the edges, (E,); None if all are 1.
        options: see ``GraphOptions``. A dropout of shape (S, 1, 1) has one rate for each network.

    Raises:
        InputError: an option out of range, or an aggregator that acts instead of the mixing.

    Shapes: ``forward()`` -> logits (S, N, num_classes).
    """

    Options = GraphOptions
    uncompiled = ("draw_ahead",)  # generators cannot be compiled
    bias = True  # of the convolutions; linear layers always have one

    def __init__(
        self,
        aggregators: list[Factory],
        x: Tensor,
        edges: Tensor,
        num_classes: int,
        seeds: list[int],
        weights: Tensor | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.options = self.Options(**options)
        N, F = self.shape = x.shape
        self._drops = bool(torch.as_tensor(self.options.dropout).any())
        self.features = Features(x, len(seeds))
        self.adjacency = Adjacency(edges, N, self.options.adjacency, weights, len(seeds))
        self.mix = self.adjacency
        self.seeds = Seeds(seeds, x.device)
        self._draw(aggregators, self.layers(F, num_classes))

    def layers(self, F: int, K: int) -> Layers:
        """Returns the channels of all layers, from F features to K classes."""
        raise NotImplementedError

    def _draw(self, factories: list[Factory], layers: Layers) -> None:
        """Draws parameters and aggregators seed by seed, so that seeds stay independent."""
        maps, dense, linear, mixings, _ = layers
        share, plain_last = self.options.share_aggregators, not dense
        self.masks = self._masks(layers)
        self.widths = widths = [*mixings] or [c_out for _, c_out in maps]
        host = f"backbone {type(self).__name__.lower()}"
        Sites(factories, widths[-1], host, ("inside", "after"))  # refuses other sites
        inside = [own for own in factories if kind_of(own, widths[-1]).site == "inside"]
        of_layers = [factories] * (len(widths) - 1) + [inside if plain_last else factories]
        drawn = [
            _Drawn(
                weights=[*starmap(self._weight, maps)],
                biases=[*starmap(self._bias, maps)] if self.bias else [],
                dense_weights=[*starmap(self._weight, dense)],
                dense_biases=[*starmap(self._bias, dense)],
                linear=[*starmap(self._weight, maps)] if linear else [],
                aggregators=_aggregators(of_layers, widths, share, plain_last),
            )
            for _ in self.seeds.seeded()
        ]
        self.weights = self._stacked([own.weights for own in drawn])
        self.biases = self._stacked([own.biases for own in drawn])
        self.linear = self._stacked([own.linear for own in drawn])
        dense_weights = self._stacked([own.dense_weights for own in drawn])
        dense_biases = self._stacked([own.dense_biases for own in drawn])
        self.dense = nn.ModuleList(map(Dense, dense_weights, dense_biases))
        made: dict[tuple[Aggregator, ...], PerSeed] = {}  # several layers may share one
        self.aggregators = nn.ModuleList(
            nn.ModuleList(
                made.setdefault(copies, PerSeed(copies, self.seeds.seeds)) for copies in zip(*layer)
            )
            for layer in zip(*(own.aggregators for own in drawn))
        ).to(self.seeds.device)
        self.distinct = [*made.values()]

    def _weight(self, c_in: int, c_out: int) -> Tensor:
        return drawn_weight(self.options.init, self.options.variance, c_in, c_out)

    def _bias(self, c_in: int, c_out: int) -> Tensor:
        return drawn_bias(self.options.init, c_out)[None]

    def _stacked(self, by_seed: list[list[Tensor]]) -> nn.ParameterList:
        device = self.seeds.device
        return nn.ParameterList(torch.stack(layer).to(device) for layer in zip(*by_seed))

    @property
    def replayable(self) -> bool:
        """Whether a CUDA graph can replay a step, which excludes generators set in the step."""
        return not any(own.random for layer in self.aggregators for own in layer)

    @property
    def rate(self) -> float | Tensor | None:
        """The rate of dropout in the current mode; None: no dropout."""
        return self.options.dropout if self.training and self._drops else None

    def _masks(self, layers: Layers) -> list[Sequence[int]]:
        """Returns the shapes of all dropout masks of a step, in the order of their use."""
        N, F = self.shape
        dropped = layers.dropped
        if dropped is None:
            dropped = [c_in for c_in, _ in (*layers.convolutions, *layers.dense)]
            dropped.remove(F)
        first = [self.features.drawn] if self.options.drop_input else []
        return [*first, *((N, channels) for channels in dropped)]

    def renew(self) -> None:
        """Drops parts of the graph for one training step; evaluation uses the whole graph."""
        for own in self.distinct:
            own.renew()
        if torch.compiler.is_compiling() or self.seeds.device.type != "cpu":
            self.draw_ahead()
        else:  # the masks of one layer fit into the caches of a CPU, those of all do not
            self._drop()

    def draw_ahead(self) -> None:
        """Draws all random numbers of a step before its compiled part, and in few kernels."""
        self._drop()
        if self.rate is not None:
            self.seeds.draw_ahead(self.masks, self.rate)

    def _drop(self) -> None:
        (N, _), E, options = self.shape, self.adjacency.edges.shape[1], self.options
        edge, node, message = (
            rate if self.training else 0.0
            for rate in (options.drop_edge, options.drop_node, options.drop_message)
        )
        self.mix = self.adjacency.dropped(edge, self.seeds) if edge else self.adjacency
        self.nodes = [self.seeds.keep((N, 1), node) for _ in self.widths] if node else []
        kept = [self.seeds.keep((E, width), message) for width in self.widths] if message else []
        self.messages = kept

    def read(self, weight: Tensor) -> Tensor:
        """Computes dropout(x) @ weight. Shapes: weight (S, F, C) -> (S, N, C)."""
        rate = self.rate if self.options.drop_input else None
        return self.features.matmul(weight, rate, self.seeds)

    def mixed(self, v: Tensor, layer: int, plus: Tensor | None = None) -> Tensor:
        """Computes inside(Ã v, v) + plus of a layer, without dropped nodes and messages.

        Shapes: v (S, N, C), plus (S, N or 1, C) -> (S, N, C).
        """
        v = v * self.nodes[layer] if self.nodes else v
        messages = self.messages[layer] if self.messages else None
        if plus is not None and messages is None and self._sums(layer, v, plus):
            return self.mix.product(v, self.at("inside", layer, plus, v))  # Ã v + (γ v̄ + plus)
        mixed = self.at("inside", layer, self.mix(v, messages), v)
        return mixed if plus is None else mixed + plus

    def _sums(self, layer: int, v: Tensor, plus: Tensor) -> bool:
        """Whether all that a layer adds to Ã v can be added by the product, which saves kernels."""
        if v.device.type == "cpu" or v.dtype != plus.dtype:
            return False
        inside = [own.copies[0] for own in self.aggregators[layer] if own.site == "inside"]
        return all(own.adds_mean and not getattr(own, "row_sum", False) for own in inside)

    def read_in(self) -> Tensor:
        """Returns relu(dropout(x) W + b) of the first linear layer, (S, N, hidden)."""
        first = self.dense[0]
        return (self.read(first.weight) + first.bias).relu()

    def times(self, h: Tensor, weight: Tensor) -> Tensor:
        """Computes dropout(relu(h)) @ weight. Shapes: h (S, N, C_in), weight (S, C_in, C_out)."""
        rate = self.rate
        mask = None if rate is None else self.seeds.mask(h.shape[1:], rate)
        scale = None if rate is None else 1 / (1 - rate)
        if takes_kernels(h, weight) and max(weight.shape[1:]) <= NARROW_ON_GPU:
            return _in_one_kernel(h, mask, weight, scale)
        return times(h.relu() if mask is None else relu_dropout(h, mask), weight, scale)

    def at(self, site: str, layer: int, x: Tensor, *others: Tensor) -> Tensor:
        """Applies the aggregators of a site of a layer."""
        for aggregator in self.aggregators[layer]:
            if aggregator.site == site:
                x = aggregator(x, *others, self.mix.context)
        return x


class _Drawn(NamedTuple):
    """The parameters and aggregators of one seed's network, layer by layer."""

    weights: list[Tensor]
    biases: list[Tensor]
    dense_weights: list[Tensor]
    dense_biases: list[Tensor]
    linear: list[Tensor]
    aggregators: list[list[Aggregator]]


class Dense(nn.Module):
    """A linear layer for each seed. Shapes: (S, N, C_in) -> (S, N, C_out)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        return times(x, self.weight) + self.bias


def _aggregators(
    factories: list[list[Factory]], dims: list[int], share: bool, plain_last: bool
) -> list[list[Aggregator]]:
    """Builds the aggregators of every layer for one seed."""
    layers: list[list[Aggregator]] = []
    for layer, dim in enumerate(dims):
        own = plain_last and layer == len(dims) - 1
        first = layers[0] if share and layer > 0 and not own else []
        layers.append(
            [
                first[i] if first and first[i].can_be_shared else make(factory, dim)
                for i, factory in enumerate(factories[layer])
            ]
        )
    return layers


NARROW = 16  # with fewer columns, MKL's product takes several times as long as its transpose


def times(x: Tensor, weight: Tensor, scale: float | Tensor | None = None) -> Tensor:
    """Computes x @ (scale · weight).

    Shapes: x (S, N, C_in), weight (S, C_in, C_out), scale of all or (S, 1, 1) -> (S, N, C_out).
    """
    if scale is not None and (x.device.type == "cpu" or torch.is_tensor(scale)):
        weight, scale = weight * scale, None
    return _Times.apply(x, weight, scale)


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scale: float | None) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(x, weight)
        if scale is None and x.device.type == "cpu" and weight.shape[-1] < NARROW:
            return (weight.mT @ x.mT).mT
        return _scaled(x, weight, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight = ctx.saved_tensors  # wider than the gradient if the product was under autocast
        dx = None
        if ctx.needs_input_grad[0]:
            dx = _scaled(grad.to(weight.dtype), weight.mT, ctx.scale)
        return dx, _scaled(grad.to(x.dtype).mT, x, ctx.scale).mT, None


def _scaled(a: Tensor, b: Tensor, scale: float | None) -> Tensor:
    """Computes scale · a @ b in one kernel."""
    if scale is None:
        return a @ b
    ignored = a[:1, :1, :1]
    return torch.baddbmm(ignored, a, b, beta=0, alpha=scale)


NARROW_ON_GPU = 64  # channels up to which a program of a GPU holds the weights


def _in_one_kernel(
    h: Tensor, mask: Tensor | None, weight: Tensor, scale: float | Tensor | None
) -> Tensor:
    from oversmoothing.lab.backbones.kernels import ReluDropoutTimes

    if torch.is_tensor(scale):
        weight, scale = weight * scale, None
    return ReluDropoutTimes.apply(h, mask, weight, 1.0 if scale is None else scale)


def relu_dropout(x: Tensor, mask: Tensor) -> Tensor:
    """Computes relu(x) ⊙ mask; where the result is 0, so is the gradient.

    The product that follows saves the result for its backward pass anyway, so this needs no extra
    memory.

    Args:
        x: of any shape.
        mask: 0 or 1, or boolean, of the same shape.
    """
    return _ReluDropout.apply(x, mask)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        out = x.clamp(min=0).mul_(mask)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, out, 0), None


class Features:
    """Multiplies the input features by weights, with dropout; one product serves all seeds.

    Sparse features stay sparse under dropout.

    Args:
        x: features, dense or CSR, (N, F).
        num_seeds: S.

    Attributes:
        drawn: shape of the dropout mask of one seed.
    """

    def __init__(self, x: Tensor, num_seeds: int) -> None:
        N, F = self.drawn = x.shape
        self.dense = None if x.is_sparse_csr else x
        if self.dense is not None:
            return
        rows = torch.repeat_interleave(x.crow_indices().diff().long())
        edges = torch.stack([rows, x.col_indices().long()])
        self.matrix = SparseMatrix(edges, (N, F), num_seeds)
        self.values = x.values().clone()  # a view of x could not be compiled
        self.drawn = self.values.shape

    def matmul(self, weight: Tensor, rate: float | Tensor | None, seeds: Seeds) -> Tensor:
        """Computes dropout(x) @ weight, without dropout if the rate is None.

        Shapes: weight (S, F, C) -> (S, N, C).
        """
        x = self.values if self.dense is None else self.dense
        x = x if rate is None else x * seeds.keep(x.shape, rate)
        dense = self.dense is not None
        return x.to(weight.dtype) @ weight if dense else self.matrix.prepared(x)(weight)
