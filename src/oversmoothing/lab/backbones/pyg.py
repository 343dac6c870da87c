"""Networks of torch-geometric's convolutions with aggregators, for several seeds.

.. math:: h ← relu(after(conv(dropout(h)))),

where aggregators inside act on what ``conv`` aggregates; skip connections are options.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.convolutions import MessagesOfConvolution
from oversmoothing.adapters.pyg import InsidePropagate, mixed_channels
from oversmoothing.adapters.sites import Chain, Factory, Sites
from oversmoothing.aggregators.base import PLAIN, Context
from oversmoothing.aggregators.drop_edge import drop_edges
from oversmoothing.aggregators.drop_message import DropMessage
from oversmoothing.aggregators.drop_node import DropNode
from oversmoothing.aggregators.rezero import ReZero
from oversmoothing.aggregators.skip_connections import InitialResidual
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.options import BRANCHES, Configured
from oversmoothing.lab.backbones.per_seed import Seeds
from oversmoothing.lab.backbones.pyg_convs import (
    Design,
    as_csr,
    degrees_of,
    redraw,
    with_loops,
)

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # a graph of four nodes


class Networks(Configured):
    """The networks of several seeds on one graph; the seeds do not influence each other.

    Args:
        aggregators: factories, applied in their order at their sites.
        x: node features, dense or CSR, (N, F).
        edges: row and column of every entry of the adjacency, (2, E).
        num_classes: number of outputs K.
        seeds: one for each network; seeds its weights and its random numbers in training.
        weights: of the edges, (E,); None if all are 1.
        options: see ``Design``.

    Raises:
        InputError: an option is out of range, the convolution does not exist or needs more than
            the graph has, or aggregators do not fit it.

    Shapes: ``forward()`` -> logits (S, N, num_classes).
    """

    Options = Design

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
        design = self.Options(**options)
        self.x, self.edge_index, self.edge_weight = x, edges.flip(0), weights
        self.seeds = Seeds(seeds, x.device)
        degrees = degrees_of(self.edge_index, len(x))
        self.nets = nn.ModuleList(
            Network(aggregators, x, num_classes, design, degrees, weights is not None)
            for _ in self.seeds.seeded()
        ).to(x.device)

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, K); appends every layer's output (S, N, C) to ``hidden``."""
        logits, layers = [], []
        for index, net in enumerate(self.nets):
            outputs: list[Tensor] | None = None if hidden is None else []
            with self._drawing(index):
                logits.append(net(self.x, self.edge_index, self.edge_weight, outputs))
            layers.append(outputs)
        if hidden is not None:
            hidden.extend(torch.stack(outputs) for outputs in zip(*layers))
        return torch.stack(logits)

    @contextmanager
    def _drawing(self, index: int) -> Iterator[None]:
        """Context in which torch's global generator continues the random numbers of a seed."""
        own, device = self.seeds.generators[index], self.seeds.device
        random = torch.cuda if device.type == "cuda" else torch.random
        of = (device,) if device.type == "cuda" else ()
        with torch.random.fork_rng(devices=of):
            random.set_rng_state(own.get_state(), *of)
            yield
            own.set_state(random.get_rng_state(*of))


class Network(nn.Module):
    """The network of one seed; it runs on any graph with equally many features.

    Its layers are those of ``backbone=gcn``: dropout, convolution, aggregators, ReLU. The last
    convolution returns the logits. With ``jumping``, dropout and a linear layer follow the
    convolutions. With ``skip=initial``, or a convolution that cannot change the number of channels,
    dropout, a linear layer and ReLU also precede them, as in GCNII.

    Args:
        aggregators: factories, applied in their order at their sites.
        x: features of the graph, (N, F); only their size and layout matter.
        num_classes: K.
        design: the options.
        degrees: number of nodes by degree, which PNAConv needs; those of a path by default.
        weighted: whether the graph has edge weights.

    Raises:
        InputError: the convolution does not run on node features and edges, or an aggregator does
            not fit it.
    """

    def __init__(
        self,
        aggregators: Sequence[Factory],
        x: Tensor,
        num_classes: int,
        design: Design,
        degrees: Tensor | None = None,
        weighted: bool = False,
    ) -> None:
        super().__init__()
        self.design = design
        hidden, depth, in_channels = design.hidden, design.depth, x.shape[1]
        first = hidden if design.reads_in else in_channels
        last = hidden if design.reads_out else num_classes
        self.dense = nn.ModuleDict()  # the linear layers; recipes know them by this name
        if design.reads_in:
            self.dense["first"] = nn.Linear(in_channels, hidden)
        degrees = degrees_of(PATH, 4) if degrees is None else degrees
        self._build(aggregators, [first] + [hidden] * (depth - 1) + [last], degrees)
        if design.reads_out:
            width = hidden * depth if design.jumping == "cat" else hidden
            self.dense["last"] = nn.Linear(width, num_classes)
        self.jumping = _jumping(design)
        edge_weight = torch.ones(6) if weighted else None
        self._try(torch.zeros(4, in_channels), edge_weight, torch.Size((4, num_classes)))
        if design.init != "conv":
            for part in (self.dense, *self.layers):
                redraw(part, design.init, design.variance)
        if x.is_sparse_csr and not design.reads_in:
            self.layers[0].takes_sparse = takes_sparse(self.layers[0].conv, in_channels)

    def _build(self, factories: Sequence[Factory], dims: list[int], degrees: Tensor) -> None:
        design = self.design
        given = {"alpha": design.alpha, "theta": design.lam, "deg": degrees}
        self.layers = nn.ModuleList()
        for number, (c_in, c_out) in enumerate(pairwise(dims), 1):
            logits = number == design.depth and not design.reads_out
            conv = design.convolution.build(c_in, c_out, logits, layer=number, **given)
            sites = Sites(factories, c_out, "backbone pyg", ("inside", "after"))
            mixed = mixed_channels(conv, sites.factories["inside"], c_in)
            shares = design.share_aggregators and not logits
            equal = (own for own in self.layers if shares and own.mixed == mixed)
            rate = design.dropout if number > 1 or design.reads_in else design.of_input
            layer = Layer(conv, sites, mixed, c_out, rate, logits, next(equal, None))
            if design.skip == "initial":
                layer.identity = InitialResidual(c_out, design.alpha, design.lam)
                layer.number = number
            if design.branch != "plain":
                layer.branch = ReZero(c_out, *BRANCHES[design.branch])
            if design.drop_message:
                MessagesOfConvolution([DropMessage(design.drop_message)]).attach(conv)
            layer.drop_node = DropNode(design.drop_node)
            self.layers.append(layer)

    @torch.no_grad()
    def _try(self, x: Tensor, edge_weight: Tensor | None, expected: torch.Size) -> None:
        """Checks the network on a small graph; this also initialises lazy parameters."""
        try:
            out = self.eval()(x, PATH, edge_weight)
            if out.shape != expected:
                raise ValueError(f"it returns {tuple(out.shape)}, expected {tuple(expected)}")
        except InputError:
            raise
        except Exception as error:  # a convolution may raise any error if an argument is missing
            raise self.design.convolution.refusal(error) from error
        self.train()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        hidden: list[Tensor] | None = None,
    ) -> Tensor:
        """Computes the logits (N, K); appends every layer's output to ``hidden``.

        Args:
            x: features, dense or CSR, (N, F).
            edge_index: source and target of every edge, (2, E).
            edge_weight: (E,); None: all 1.
            hidden: list that the outputs are appended to.
        """
        context = self._context(edge_index, x.shape[0])
        edge_index, edge_weight = self._edges(edge_index, edge_weight, x)
        h = x
        if self.design.reads_in:
            h = self.dense["first"](dropped(x, self.design.of_input, self.training)).relu()
        edges = self.design.convolution.arguments(edge_index, edge_weight, h)
        keeps = hidden is not None or self.jumping is not None
        outputs = self._convolve(h, edges, context, keeps)
        if hidden is not None:
            hidden.extend(outputs)
        if not self.design.reads_out:
            return outputs[-1]
        h = outputs[-1] if self.jumping is None else self.jumping(outputs)
        return self.dense["last"](dropped(h, self.design.dropout, self.training))

    def _convolve(
        self, h: Tensor, edges: dict[str, Tensor], context: Context, keeps: bool
    ) -> list[Tensor]:
        """Returns the outputs of all layers; only the last one without ``keeps``."""
        interval = self.design.interval if self.design.skip == "residual" else 0
        initial, outputs, skipped = h, [], h if self.design.reads_in else 0.0
        for position, layer in enumerate(self.layers, int(self.design.reads_in)):
            h = layer(h, edges, initial, context) if outputs else self._first(h, edges, context)
            if interval and not layer.logits and position % interval == 0:
                first = position == 0  # there are no features to be added to
                h = skipped = h if first else layer.branch(h) + skipped
            outputs = [*outputs, h] if keeps else [h]
        return outputs

    def _first(self, x: Tensor, edges: dict[str, Tensor], context: Context) -> Tensor:
        """Computes the first layer, with the edges as one matrix if that saves memory."""
        layer = self.layers[0]
        try:
            return layer(x, self._wide(layer, x, edges), x, context)
        except NotImplementedError:  # torch-geometric prepares a class for its first instance only
            return layer(x, edges, x, context)

    def _wide(self, layer: "Layer", x: Tensor, edges: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the edges as one matrix if the convolution multiplies it by the input features.

        Input features need no gradient and often have many channels. Messages would take E × F
        numbers; the product takes N × F.
        """
        plain = not (self.design.reads_in or self.design.drop_message)
        mixes_features = plain and self.design.convolution.multiplies(layer.conv)
        if not mixes_features or torch.compiler.is_compiling():
            return edges
        return {"edge_index": as_csr(edges["edge_index"], edges.get("edge_weight"), x)}

    def _edges(
        self, edge_index: Tensor, edge_weight: Tensor | None, x: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Drops edges in training, and normalises the adjacency unless the convolution does."""
        if self.training and self.design.drop_edge:
            kept = drop_edges(edge_index, self.design.drop_edge)
            edge_index = edge_index[:, kept]
            edge_weight = None if edge_weight is None else edge_weight[kept]
        if self.design.adjacency == "conv":
            return edge_index, edge_weight
        return with_loops(edge_index, edge_weight, x.shape[0], self.design.adjacency, x.dtype)

    def _context(self, edge_index: Tensor, num_nodes: int) -> Context:
        """Returns what aggregators after a convolution may read."""
        if not any(layer.reads_edges for layer in self.layers):
            return PLAIN
        loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
        edges = torch.cat([edge_index.flip(0), loops], dim=1)
        return Context(edges=edges, num_nodes=num_nodes)


class Layer(nn.Module):
    """One convolution with its aggregators.

    Args:
        conv: the convolution.
        sites: builds the aggregators.
        mixed: channels that the convolution mixes; 0 if no aggregator asks for it.
        dim: channels of the output.
        dropout: rate before the convolution.
        logits: whether the output are the logits; then neither aggregators nor ReLU follow.
        like: the layer whose aggregators this one shares; None: it has its own.

    Attributes:
        identity: initial residual and identity map after the convolution, or None.
        number: of the layer, from 1; known if it has ``identity``.
        branch: scales the output before a residual sum.
        drop_node: drops nodes of the input.
        takes_sparse: whether the convolution takes sparse features; if not, they are made dense.
    """

    def __init__(
        self,
        conv: nn.Module,
        sites: Sites,
        mixed: int,
        dim: int,
        dropout: float,
        logits: bool,
        like: "Layer | None" = None,
    ) -> None:
        super().__init__()
        self.conv, self.mixed, self.rate, self.logits = conv, mixed, dropout, logits
        self.identity: InitialResidual | None = None
        self.branch: nn.Module = nn.Identity()
        self.drop_node = DropNode(0.0)
        self.takes_sparse = False
        if sites.has("inside"):
            build = partial(sites.build, "inside", mixed, heads=getattr(conv, "heads", 1))
            InsidePropagate(_shared(like and like.conv.inside, build)).attach(conv)
        build = partial(sites.build, "after", dim)
        self.after = Chain() if logits else _shared(like and like.after, build)

    @property
    def reads_edges(self) -> bool:
        """Whether an aggregator after the convolution looks at the edges."""
        return any(aggregator.reads_edges for aggregator in self.after)

    def forward(
        self, h: Tensor, edges: dict[str, Tensor], initial: Tensor, context: Context
    ) -> Tensor:
        """Applies dropout and the convolution, then aggregators and ReLU unless it returns logits.

        Args:
            h: output of the layer before.
            edges: arguments of the convolution besides the features.
            initial: output of the first linear layer.
            context: for aggregators after the convolution.

        Shapes: h (N, C), initial (N, C) -> (N, C').
        """
        h = self._without_nodes(dropped(h, self.rate, self.training))
        h = h if self.takes_sparse or h.layout == torch.strided else h.to_dense()
        h = self.conv(h, **edges)
        h = h[0] if isinstance(h, tuple) else h  # PANConv also returns its matrix
        if self.identity is not None:
            h = self.identity(h, Context(inputs=(initial,), layer=self.number))
        return h if self.logits else self.after(h, context).relu()

    def _without_nodes(self, x: Tensor) -> Tensor:
        """Drops nodes in training; sparse features (CSR) keep their pattern."""
        if not (self.training and self.drop_node.rate):
            return x
        kept = self.drop_node(x.new_ones(len(x), 1, layout=torch.strided))
        if x.layout == torch.strided:
            return x * kept
        values = x.values() * kept[:, 0].repeat_interleave(x.crow_indices().diff())
        pattern = (x.crow_indices(), x.col_indices())
        return torch.sparse_csr_tensor(*pattern, values, x.shape, check_invariants=False)


def _shared(held: Chain | None, build: Callable[[], Chain]) -> Chain:
    """Returns the aggregators of another layer, with new ones for those that cannot be shared."""
    if held is None:
        return build()
    if all(own.can_be_shared for own in held):
        return held
    return Chain(old if old.can_be_shared else new for old, new in zip(held, build()))


def dropped(x: Tensor, rate: float, training: bool) -> Tensor:
    """Applies dropout; sparse features (CSR) keep their pattern."""
    if not (training and rate):
        return x
    if x.layout != torch.strided:
        pattern, values = (x.crow_indices(), x.col_indices()), dropped(x.values(), rate, training)
        return torch.sparse_csr_tensor(*pattern, values, x.shape, check_invariants=False)
    keep = torch.empty_like(x).uniform_() >= rate  # faster than bernoulli_ on a CPU
    return x * keep.to(x.dtype).mul_(1 / (1 - rate))


@torch.enable_grad()
def takes_sparse(conv: nn.Module, in_channels: int) -> bool:
    """Whether a convolution returns the same outputs and gradients for sparse features.

    This is true if it begins with a product. It is found by a trial, since most other convolutions
    raise an error and none declares it.
    """
    x, parameters, found = torch.eye(4, in_channels), [*conv.parameters()], []
    try:
        for features in (x, x.to_sparse_csr()):
            out = conv.eval()(features, PATH)
            grads = torch.autograd.grad(out.square().sum(), parameters, materialize_grads=True)
            found.append([out, *grads])
    except Exception:
        return False
    finally:
        conv.train()
    return all(a.layout == b.layout and torch.allclose(a, b) for a, b in zip(*found))


def _jumping(design: Design) -> nn.Module | None:
    if design.jumping == "none":
        return None
    from torch_geometric.nn import JumpingKnowledge

    return JumpingKnowledge(design.jumping, design.hidden, design.depth)
