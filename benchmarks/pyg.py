"""Compares CPU seconds per epoch of the repository's networks with torch-geometric's.

    python benchmarks/pyg.py
    python benchmarks/pyg.py --depths 2 64 --all   # also with backbone=pyg

An epoch is one optimisation step of all seeds, with dropout 0.6 and 32 channels. `backbone=gcn` and
`backbone=gcnii` batch the seeds; torch-geometric's networks are trained one after another. SAGE and
GAT are compared with GCN. Uses Cora if DATA_ROOT (default: data) has it, else a generated graph of
that size.
"""

import argparse
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import floors
import record
import torch
import torch.nn.functional as F
from measure import interleaved
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.gcnii import GCNII
from oversmoothing.lab.backbones.pyg import Networks
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.data.planetoid import load
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.tasks.nodes.loop import keep_freed_memory

GOALS = {2: 25.0, 8: 10.0, 32: 6.0}
PAIRS = {  # row: (own network, options of backbone=pyg)
    "GCNConv": (GCN, {"conv": "GCNConv", "adjacency": "symmetric"}),
    "GCN2Conv": (GCNII, {"conv": "GCN2Conv", "adjacency": "symmetric"}),
    "SAGEConv": (GCN, {"conv": "SAGEConv"}),
    "GATConv, 8 heads": (GCN, {"conv": "GATConv", "options": {"heads": 8}}),
}


def main() -> None:
    options = arguments()
    keep_freed_memory()  # as in train.py
    graph, seeds = cora(), [*range(options.seeds)]
    for depth in options.depths:
        rows = [one_by_one(graph, depth, seeds, options.rounds)]
        if options.all:
            rows += [wrapped(graph, name, depth, seeds, options.rounds) for name in PAIRS]
        record.save(rows)


def one_by_one(graph: Graph, depth: int, seeds: list[int], rounds: int) -> record.Row:
    """Compares GCNs with LayerNorm with a plain network of torch-geometric for each seed."""
    own = GCN(
        [LayerNorm], graph.x, graph.edges, graph.num_classes, seeds, depth, adjacency="symmetric"
    )
    nets = [Plain(graph, depth) for _ in seeds]
    train, inputs = graph.train.nonzero()[:, 0], (graph.x.to_dense(), graph.edges.flip(0))

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits[train], graph.y[train])

    fused = torch.optim.Adam(own.parameters(), lr=0.005, weight_decay=5e-4, fused=True)
    ours = stepping(lambda: sum(map(loss, own.train()())), fused)
    theirs = [
        stepping(lambda net=net: loss(net.train()(*inputs)), torch.optim.Adam(
            net.parameters(), lr=0.005, weight_decay=5e-4))
        for net in nets
    ]  # fmt: skip
    steps = {"own": ours, "pyg": lambda: [step() for step in theirs]}
    steps["products"] = floors.Products(own).epoch
    seconds = interleaved(steps, rounds, time.process_time)
    measure = f"CPU s per epoch of {len(seeds)} seeds on {graph.name}"
    about = {"peer": "torch-geometric's GCNConv, seed by seed", "goal": GOALS.get(depth)}
    about["note"] = floors.note(seconds["own"], seconds["products"], seconds["pyg"])
    work = f"GCN with LayerNorm, L = {depth}"
    return record.row(work, measure, seconds["own"], theirs=seconds["pyg"], **about)


def wrapped(graph: Graph, name: str, depth: int, seeds: list[int], rounds: int) -> record.Row:
    """Compares a convolution in ``backbone=pyg`` with the repository's own network."""
    own, given = PAIRS[name]
    common = {"depth": depth, "hidden": 32, "dropout": 0.6}
    graph_of = ([], graph.x, graph.edges, graph.num_classes, seeds)
    nets = {"own": own(*graph_of, **common, adjacency="symmetric")}
    nets["pyg"] = Networks(*graph_of, **common, **given)
    steps = {key: epoch(net) for key, net in nets.items()}
    seconds = interleaved(steps, rounds, time.process_time)
    return record.row(
        f"{own.__name__}, L = {depth}", f"CPU s per epoch of {len(seeds)} seeds on {graph.name}",
        seconds["own"], peer=f"backbone=pyg, {name}", theirs=seconds["pyg"],
    )  # fmt: skip


class Plain(nn.Module):
    """A typical GCN in torch-geometric; the normalised adjacency is cached."""

    def __init__(self, graph: Graph, depth: int) -> None:
        super().__init__()
        dims = [graph.x.shape[1], *[32] * (depth - 1), graph.num_classes]
        self.convs = nn.ModuleList(GCNConv(*pair, cached=True) for pair in pairwise(dims))
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        *hidden, last = self.convs
        for conv in hidden:
            x = conv(F.dropout(x, 0.6, self.training), edge_index)
            x = self.norm(x).relu()
        return last(F.dropout(x, 0.6, self.training), edge_index)


def epoch(network: nn.Module) -> Callable[[], None]:
    """An optimisation step of a network."""
    optimizer = torch.optim.Adam(network.train().parameters(), fused=True)
    return stepping(lambda: network().logsumexp(dim=-1).mean(), optimizer)


def stepping(loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def cora() -> Graph:
    root = os.environ.get("DATA_ROOT", "data")
    if (Path(root) / "graphs/Planetoid/Cora/raw").is_dir():
        return load("cora", root=root)
    return generate(num_nodes=2708, num_classes=7, degree=4.0, features=1433)


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--all", action="store_true", help="all convolutions, as backbone=pyg")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5, help="the networks take turns in each")
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
