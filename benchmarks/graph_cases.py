"""What is measured on graphs, beside torch-geometric and methods beside none.

The data are Cora if DATA_ROOT (default: data) has it, else a generated graph, unless a case says
otherwise.
"""

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
from oversmoothing.lab.launch.execute import Start, keep_freed_memory
from oversmoothing.lab.papers.cures_cells import BASELINE, Place, seeds_of, study
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchLoop

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


# ---------------------------------------------------------------- GCNs of Table 5
def graphs(
    run: Run,
    depths: tuple[int, ...] = (2, 8),
    methods: tuple[str, ...] = tuple(METHODS),
) -> Iterator[Comparison]:
    """An epoch of five seeds of a GCN of Table 5, on a GPU beside that without a CUDA graph.

    It is what train.py runs: seeds batched, sparse features, no N × N matrix. Records beside the
    plain form, with dense features and an explicit N × N softmax, and beside ContraNorm's code are
    of the commits that they name.
    """
    for depth, method in product(depths, methods):
        make = partial(epoch_of, method, depth, run.place)
        on_gpu = run.place.type != "cpu"
        name = f"epoch of {len(SEEDS)} seeds on {DATA.removeprefix('data=')}"
        yield Comparison(
            {f"GCN, {method}, L = {depth}": make},
            {"ours without a CUDA graph": partial(make, "trainer.cuda_graph=false")}
            if on_gpu
            else {},
            unit=f"CPU s per {name}",
            peak=f"peak MB per {name}" if method == "contranorm" else "",
        )


def epoch_of(method: str, depth: int, place: torch.device, *more: str) -> Callable[[], object]:
    """Returns one epoch of all seeds in one network, as train.py trains them."""
    cell = ["experiment=gnn_table5", DATA, f"backbone.depth={depth}", *more]
    fixed = [f"backbone.hidden={HIDDEN}", f"backbone.dropout={DROPOUT}", f"device={place}"]
    return training([*cell, *fixed, *METHODS[method]], SEEDS).step


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
    """Time, and on a GPU memory, of an epoch by number of nodes, 10³ to 10⁶ at degree 10.

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
            if not found:  # it does not fit on the GPU
                break
            own.append((size, *(float(each["ours"]) for each in found)))
            if own[-1][1] > limit:
                break
        measures = ("time", "memory")[: len(own[0]) - 1] if own else ()  # memory on a GPU only
        for column, measure in enumerate(measures, start=1):
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
