"""The implementations of a cell of Table 5: ours, the reference, the authors' code."""

import copy
import os
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.nn.functional as F
from official_gcn import OFFICIAL_NORMS, official
from reference_gcn import DROPOUT, HIDDEN, ReferenceGCN, adjacency
from torch import Tensor, nn

from oversmoothing.lab.arguments import build
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.start import parts
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes.loop import FullBatchLoop

SEEDS = [0, 1, 2, 3, 4]
METHODS = {
    "none": ["aggregator=none", "aggregator@then=none"],
    "layernorm": ["aggregator=none"],
    "pairnorm": ["aggregator=pairnorm"],
    "contranorm": ["aggregator=contranorm"],
    "centered": ["aggregator=centered"],
}


class Ours:
    """Trains all seeds in one network, as train.py does."""

    def __init__(self, config: list[str], graph: Graph) -> None:
        built = parts(compose_config(config))
        graph_arguments = {"x": graph.x, "edges": graph.edges, "num_classes": graph.num_classes}
        own = {"aggregators": built.aggregators, "seeds": SEEDS}
        self.net: GCN = built.backbone(**own, **graph_arguments).to(graph.edges.device)
        self.graph = graph
        recorder = Recorder(Path(mkdtemp()), SEEDS)  # remains empty
        self.loop = FullBatchLoop(self.net, graph, built.trainer, recorder, False)

    def epoch(self) -> None:
        self.loop.step()

    def logits(self) -> Tensor:
        return self.net.eval()()


class OneByOne:
    """Trains one network per seed, one after another."""

    def __init__(self, nets: list[nn.Module], graph: Graph, x: Tensor, adj: Tensor) -> None:
        self.nets, self.graph, self.x, self.adj = nets, graph, x, adj
        self.optimizers = [adam(net) for net in nets]

    def epoch(self) -> None:
        train, y = self.graph.train.nonzero()[:, 0], self.graph.y
        for net, optimizer in zip(self.nets, self.optimizers):
            step(optimizer, F.cross_entropy(net.train()(self.x, self.adj)[train], y[train]))

    def logits(self) -> Tensor:
        return torch.stack([net.eval()(self.x, self.adj) for net in self.nets])

    def exact_logits(self) -> Tensor:
        """Computes the logits in float64."""
        nets = [copy.deepcopy(net).double().eval() for net in self.nets]
        return torch.stack([net(self.x.double(), self.adj.double()) for net in nets])


Cell = Ours | OneByOne


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


class Bench:
    """One graph, and the implementations of a cell on it."""

    def __init__(self, folder: Path | None, place: torch.device) -> None:
        root = Path(os.environ.get("DATA_ROOT") or "data")
        has_cora = (root / "graphs/Planetoid/Cora/raw").is_dir()
        self.data = f"data={'cora' if has_cora else 'sbm'}"
        self.graph: Graph = build(compose_config([self.data]).data).to(place)
        self.x, self.adj = self.graph.x.to_dense(), adjacency(self.graph)
        self.folder = folder

    def forms(self, method: str) -> list[str]:
        """Returns the names of the implementations of a method."""
        has_official = self.folder and method in OFFICIAL_NORMS
        return ["ours", "reference"] + (["official"] if has_official else [])

    def make(self, form: str, method: str, depth: int) -> Cell:
        """Builds an implementation of a cell, newly initialised."""
        if form == "ours":
            fixed = [f"backbone.hidden={HIDDEN}", f"backbone.dropout={DROPOUT}"]
            cell = ["experiment=gnn_table5", self.data, f"backbone.depth={depth}"]
            return Ours([*cell, *fixed, *METHODS[method]], self.graph)
        dims = [self.x.shape[1], *[HIDDEN] * (depth - 1), self.graph.num_classes]
        if form == "official":
            nets = [official(self.folder, method, dims) for _ in SEEDS]
        else:
            nets = [ReferenceGCN(method, dims) for _ in SEEDS]
        return OneByOne([net.to(self.x.device) for net in nets], self.graph, self.x, self.adj)
