"""Seconds per epoch of `backbone=pyg` beside the same networks of the repository's own.

    python benchmarks/pyg.py
    python benchmarks/pyg.py --depths 64 --seeds 1

An epoch is one optimisation step of all seeds, with dropout 0.6 and 32 channels. `backbone=gcn` and
`backbone=gcnii` batch the seeds, `backbone=pyg` takes one after another. SAGE and GAT stand beside
GCN. Uses Cora where DATA_ROOT (default: data) has it, else a generated graph of that size.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from measure import interleaved, median_ratio, text
from torch import nn

from oversmoothing.backbones.gcn.gcn import GCN
from oversmoothing.backbones.gcn.gcnii import GCNII
from oversmoothing.backbones.pyg.networks import Networks
from oversmoothing.data.graphs.graph import Graph
from oversmoothing.data.graphs.graphs import load
from oversmoothing.data.graphs.sbm import generate
from oversmoothing.launch.script import run_script

PAIRS = {  # row: (own network, options of backbone=pyg)
    "GCNConv": (GCN, {"conv": "GCNConv", "adjacency": "symmetric"}),
    "GCN2Conv": (GCNII, {"conv": "GCN2Conv", "adjacency": "symmetric"}),
    "SAGEConv": (GCN, {"conv": "SAGEConv"}),
    "GATConv, 8 heads": (GCN, {"conv": "GATConv", "options": {"heads": 8}}),
}


def main() -> None:
    options = arguments()
    graph, seeds = cora(), [*range(options.seeds)]
    print(f"{graph.name}, {len(seeds)} seeds, {torch.get_num_threads()} threads\n")
    rows = [["seconds per epoch", "own", "backbone=pyg", "× own"]]
    for depth in options.depths:
        for name, (own, given) in PAIRS.items():
            common = {"depth": depth, "hidden": 32, "dropout": 0.6}
            graph_of = ([], graph.x, graph.edges, graph.num_classes, seeds)
            nets = {"own": own(*graph_of, **common, adjacency="symmetric")}
            nets["pyg"] = Networks(*graph_of, **common, **given)
            seconds = interleaved({key: epoch(net) for key, net in nets.items()}, options.rounds)
            shown = [f"{statistics.median(values):.3f}" for values in seconds.values()]
            ratio = median_ratio(seconds["pyg"], seconds["own"])
            rows.append([f"{name} / {own.__name__}, {depth} layers", *shown, f"{ratio:.1f}"])
    print(text(rows))


def epoch(network: nn.Module) -> Callable[[], None]:
    """An optimisation step of a network."""
    optimizer = torch.optim.Adam(network.train().parameters())

    def step() -> None:
        optimizer.zero_grad()
        network().logsumexp(dim=-1).mean().backward()
        optimizer.step()

    return step


def cora() -> Graph:
    root = os.environ.get("DATA_ROOT", "data")
    if (Path(root) / "graphs/Planetoid/Cora/raw").is_dir():
        return load("cora", root=root)
    return generate(num_nodes=2708, num_classes=7, degree=4.0, features=1433)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 32])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5, help="the networks take turns in each")
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
