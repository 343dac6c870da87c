"""What is measured on graphs, beside torch-geometric and plain forms.

The data are Cora if DATA_ROOT (default: data) has it, else a generated graph, unless a case says
otherwise.
"""

import copy
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
import torch.nn.functional as F
from bench import Comparison, Item, Run, row
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.lab.arguments import build
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.sparse import Adjacency
from oversmoothing.lab.data import csbm
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.papers.cures_cells import BASELINE, Place, seeds_of, study
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchLoop, keep_freed_memory

SEEDS = [0, 1, 2, 3, 4]
HIDDEN, DROPOUT = 32, 0.6
METHODS = {
    "none": ["aggregator=none", "aggregator@then=none"],
    "layernorm": ["aggregator=none"],
    "pairnorm": ["aggregator=pairnorm"],
    "contranorm": ["aggregator=contranorm"],
    "centered": ["aggregator=centered"],
}
OTHERS = {  # methods that the study does not have -> overrides
    "ContraNorm+LayerNorm": "aggregator=contranorm aggregator@then=layernorm",
    "DropNode": "backbone.drop_node=0.3",
    "DropMessage": "backbone.drop_message=0.3",
    "HalfHop": "data=half_hop",
}
ROOT = Path(os.environ.get("DATA_ROOT") or "data")
DATA = "data=cora" if (ROOT / "graphs/Planetoid/Cora/raw").is_dir() else "data=sbm"


def cora() -> Graph:
    return build(compose_config([DATA]).data)


def training(
    words: list[str], seeds: list[int], kind: type[FullBatchLoop] | None = None
) -> FullBatchLoop:
    """Builds the training loop of a run, with its data and network, as train.py does."""
    start = Start(compose_config([*words, "logger=none"]))
    recorder = Recorder(Path(mkdtemp()), seeds)  # remains empty
    trainer = start.parts.trainer
    kind = kind or trainer.loop()
    graph = start.parts.data if trainer.on_host else start.parts.data.to(start.device)
    return kind(start.network(seeds), graph, trainer, recorder, False)


def adam(net: nn.Module, fused: bool | None = None) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4, fused=fused)


def stepping(loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


# ---------------------------------------------------------------- GCNs beside the plain form
def graphs(
    run: Run,
    depths: tuple[int, ...] = (2, 8),
    methods: tuple[str, ...] = tuple(METHODS),
) -> Iterator[Comparison]:
    """An epoch of five seeds of a GCN of Table 5, beside the plain form.

    ``ours`` is what train.py runs: seeds batched, sparse features, no N × N matrix. The plain form
    trains one seed after the other with dense features and an explicit N × N softmax.
    """
    graph = cora().to(run.place)
    x, adj = graph.x.to_dense(), adjacency(graph)

    def plain(method: str, depth: int) -> OneByOne:
        dims = [x.shape[1], *[HIDDEN] * (depth - 1), graph.num_classes]
        return OneByOne([PlainGCN(method, dims).to(run.place) for _ in SEEDS], graph, x, adj)

    for depth, method in product(depths, methods):
        own = partial(OneBatch, method, depth, run.place)
        theirs = {"the plain form, seed by seed": partial(plain, method, depth)}
        if run.place.type != "cpu":
            theirs["ours without a CUDA graph"] = partial(own, "trainer.cuda_graph=false")
        quadratic = method == "contranorm"
        epoch = f"epoch of {len(SEEDS)} seeds on {graph.name}"
        yield Comparison(
            {f"GCN, {method}, L = {depth}": own},
            theirs,
            unit=f"CPU s per {epoch}",
            peak=f"peak MB per {epoch}" if quadratic else "",
            agree=logits_differ,
        )


class OneBatch:
    """Trains all seeds in one network, as train.py does."""

    def __init__(self, method: str, depth: int, place: torch.device, *more: str) -> None:
        cell = ["experiment=gnn_table5", DATA, f"backbone.depth={depth}", *more]
        fixed = [f"backbone.hidden={HIDDEN}", f"backbone.dropout={DROPOUT}", f"device={place}"]
        self.loop = training([*cell, *fixed, *METHODS[method]], SEEDS)

    def __call__(self) -> None:
        self.loop.step()

    def logits(self) -> Tensor:
        return self.loop.model.eval()()


class OneByOne:
    """Trains one network per seed, one after another."""

    def __init__(self, nets: list[nn.Module], graph: Graph, x: Tensor, adj: Tensor) -> None:
        self.nets, self.graph, self.x, self.adj = nets, graph, x, adj
        self.optimizers = [adam(net) for net in nets]
        self.train = graph.train.nonzero()[:, 0]

    def __call__(self) -> None:
        for net, optimizer in zip(self.nets, self.optimizers):
            logits = net.train()(self.x, self.adj)[self.train]
            optimizer.zero_grad()
            F.cross_entropy(logits, self.graph.y[self.train]).backward()
            optimizer.step()

    def logits(self, dtype: torch.dtype = torch.float32) -> Tensor:
        nets = [copy.deepcopy(net).to(dtype).eval() for net in self.nets]
        return torch.stack([net(self.x.to(dtype), self.adj.to(dtype)) for net in nets])


@torch.no_grad()
def logits_differ(steps: dict[str, OneBatch | OneByOne]) -> tuple[float, float]:
    """Compares logits with those of the plain form in float64, at equal weights, without dropout.

    They may differ by four times the error of the plain form in float32.
    """
    ours, plain, *_ = steps.values()
    for seed, net in enumerate(plain.nets):
        for layer, weight, bias in zip(net.layers, ours.loop.model.weights, ours.loop.model.biases):
            layer.weight.copy_(weight[seed])
            layer.bias.copy_(bias[seed])
    exact = plain.logits(torch.float64)
    gaps = [(step.logits() - exact).abs().max().item() for step in (plain, *steps.values())]
    return max(gaps), max(1e-5, 4 * gaps[0])


def adjacency(graph: Graph) -> Tensor:
    """Returns D⁻¹(A + I) as COO (N, N)."""
    N, place = graph.num_nodes, graph.edges.device
    indices = torch.cat([graph.edges, torch.arange(N, device=place).expand(2, -1)], dim=1)
    ones = torch.ones(indices.shape[1], device=place)
    a = torch.sparse_coo_tensor(indices, ones, (N, N), check_invariants=True).coalesce()
    values = a.values() / a.sum(dim=1).to_dense()[a.indices()[0]]
    return torch.sparse_coo_tensor(a.indices(), values, (N, N), check_invariants=True).coalesce()


class PlainLayer(nn.Module):
    """Computes Ã x, then applies the weights. Shapes: x (N, C_in) -> (N, C_out)."""

    def __init__(self, c_in: int, c_out: int, gamma: float) -> None:
        super().__init__()
        self.gamma, bound = gamma, 1 / math.sqrt(c_out)
        self.weight = nn.Parameter(torch.empty(c_in, c_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(1, c_out).uniform_(-bound, bound))

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        mixed = torch.spmm(adj, x)
        if self.gamma:
            mixed = mixed + self.gamma * x.mean(dim=0)
        return mixed @ self.weight + self.bias


class PlainGCN(nn.Module):
    """The network of one seed of Table 5, with dense features and N × N matrices.

    Args:
        method: of ``METHODS``; centered has γ = −1. All except none are followed by one shared
            LayerNorm.
        dims: channels from the features to the classes.

    Shapes: x (N, F) -> logits (N, classes).
    """

    def __init__(self, method: str, dims: list[int]) -> None:
        super().__init__()
        gamma = -1.0 if method == "centered" else 0.0
        self.layers = nn.ModuleList(PlainLayer(*pair, gamma) for pair in pairwise(dims))
        self.method = method
        self.layer_norm = nn.Identity() if method == "none" else nn.LayerNorm(HIDDEN)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(F.dropout(x, DROPOUT, self.training), adj)
            x = self.layer_norm(self._norm(x, adj)).relu()
        return last(F.dropout(x, DROPOUT, self.training), adj)

    def _norm(self, x: Tensor, adj: Tensor) -> Tensor:
        if self.method == "pairnorm":
            x = x - x.mean(dim=0)
            return x / (1e-6 + x.square().sum(dim=1).mean()).sqrt()
        if self.method == "contranorm":
            x_hat = F.normalize(x, dim=1)
            similarity = (x_hat @ x_hat.T).masked_fill(adj.to_dense() > 1e-5, -torch.inf)
            return 2 * x - similarity.softmax(dim=1) @ x
        return x


# ---------------------------------------------------------------- beside torch-geometric
def pyg(run: Run, depths: tuple[int, ...] = (2, 8, 32)) -> Iterator[Comparison]:
    """An epoch of five seeds, beside networks as one writes them with torch-geometric."""
    keep_freed_memory()  # as in train.py
    graph = cora()
    given = (graph.x, graph.edges, graph.num_classes, SEEDS)
    train = graph.train.nonzero()[:, 0]

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits[train], graph.y[train])

    def own(depth: int) -> Callable[[], None]:
        net = GCN([LayerNorm], *given, depth=depth, adjacency="symmetric").train()
        return stepping(lambda: sum(map(loss, net())), adam(net, fused=True))

    def theirs(depth: int) -> Callable[[], None]:
        inputs = graph.x.to_dense(), graph.edges.flip(0)
        nets = [PygGCN(graph, depth).train() for _ in SEEDS]
        steps = [stepping(lambda net=net: loss(net(*inputs)), adam(net)) for net in nets]
        return lambda: [step() for step in steps]

    for depth in depths:
        yield Comparison(
            {f"GCN with LayerNorm, L = {depth}": partial(own, depth)},
            {"torch-geometric's GCNConv, seed by seed": partial(theirs, depth)},
            unit=f"CPU s per epoch of {len(SEEDS)} seeds on {graph.name}",
        )


class PygGCN(nn.Module):
    """A typical GCN in torch-geometric; the normalised adjacency is cached."""

    def __init__(self, graph: Graph, depth: int) -> None:
        super().__init__()
        dims = [graph.x.shape[1], *[HIDDEN] * (depth - 1), graph.num_classes]
        self.convs = nn.ModuleList(GCNConv(*pair, cached=True) for pair in pairwise(dims))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        *hidden, last = self.convs
        for conv in hidden:
            x = conv(F.dropout(x, DROPOUT, self.training), edge_index)
            x = self.norm(x).relu()
        return last(F.dropout(x, DROPOUT, self.training), edge_index)


def cures(
    run: Run, graph: str = "Cora", network: str = "GCN", layers: tuple[int, ...] = (2, 8)
) -> Iterator[Comparison]:
    """A training step of all seeds of each method of `make cures`, beside that of no method.

    Methods that are not in this study take the place of no method in its network.
    """

    def make(depth: int, method: str) -> Callable[[], object]:
        name = BASELINE if method in OTHERS else method
        cell = study()[Place(graph, network, depth, name)]
        words = [f"experiment={cell.experiment}", *cell.overrides, *cell.candidates[0]]
        own = OTHERS.get(method, "").split()
        if "data=half_hop" in own:  # which holds the keys of its graph in data.of
            words = [word.replace("data.", "data.of.") for word in words if word[:5] != "data="]
        words += own
        return training([*words, f"device={run.place}"], seeds_of(cell)).step

    methods = [*dict.fromkeys(place.method for place in study()), *OTHERS]
    for depth in layers:
        makes = {method: partial(make, depth, method) for method in methods}
        baseline = makes.pop(BASELINE)
        yield Comparison(
            {f"{network}, {graph}, L = {depth}: {method}": m for method, m in makes.items()},
            {BASELINE: baseline},
            unit="CPU s per training step of all seeds",
            overhead=(BASELINE,),
        )


# ---------------------------------------------------------------- graphs that grow
FLOOR = "product with Ã alone"
GROWING: dict[str, tuple[int, list[Callable]]] = {  # layers, aggregators
    "vanilla": (2, []),
    "LayerNorm": (2, [LayerNorm]),
    "centered": (2, [Centered]),
    "centered, 8 layers": (8, [Centered, LayerNorm]),
    "PairNorm": (2, [PairNorm]),
    "ContraNorm": (2, [ContraNorm]),
    "ContraNorm, 256 negatives": (2, [partial(ContraNorm, negatives=256)]),
    FLOOR: (0, []),
}


def slopes(
    run: Run,
    largest: int = 10**6,
    limit: float = 10.0,
    methods: tuple[str, ...] = tuple(GROWING),
) -> Iterator[Item]:
    """Time and memory of an epoch by number of nodes, 10³ to 10⁶ at degree 10.

    An epoch is one training step of one seed: a GCN of two or eight layers with 32 hidden channels
    on data=sbm with 32 features. A method is not measured beyond the size at which an epoch takes
    more than ``--limit`` seconds. Exponents are fitted from 10⁴ nodes on, since fixed costs
    dominate below.
    """
    keep_freed_memory()
    sizes = [n for n in (round(10 ** (k / 2)) for k in range(6, 13)) if n <= largest]
    for name in methods:
        depth = GROWING[name][0]
        work = f"GCN, {depth} layers, {name.partition(', 8')[0]}" if depth else name
        own = []
        for size in sizes:
            make = {f"{work}, {size:,} nodes": partial(_epoch, name, size)}
            found = yield Comparison(make, unit="CPU s per epoch", peak="peak MB")
            if not found:  # the peak of one size is measured
                continue
            own.append((size, *(float(each["ours"]) for each in found)))
            if own[-1][1] > limit:
                break
        for measure, column in (("time", 1), ("memory", 2)) if own else ():
            large = [(each[0], each[column]) for each in own if each[0] >= 10**4]
            slope = np.polyfit(*np.log(large).T, 1)[0] if large[1:] else math.nan
            yield [row(work, f"exponent of {measure} over nodes", [float(slope)])]


def _epoch(name: str, size: int) -> Callable[[], object]:
    """Returns one training step of a network."""
    graph = csbm.generate(num_nodes=size, features=32)  # kept after the first call
    depth, aggregators = GROWING[name]
    if name == FLOOR:
        adjacency, x = Adjacency(graph.edges, size, "row"), torch.rand(1, size, 32)
        return lambda: adjacency(x)
    net = GCN(aggregators, graph.x, graph.edges, graph.num_classes, [0], depth=depth, hidden=HIDDEN)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    return stepping(lambda: F.cross_entropy(net()[0, graph.train], graph.y[graph.train]), optimizer)
