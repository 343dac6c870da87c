"""Compares the estimated memory of training on a graph with the measured one.

    OMP_NUM_THREADS=1 python benchmarks/memory.py

The peak of the resident size while the network is built and makes two training steps, each case in
a separate process, is compared with ``oversmoothing.lab.tasks.nodes.memory``. Exit code 1 if a
ratio is not between ½ and 2.
"""

import argparse
from functools import partial

import record
import torch
import torch.nn.functional as F
from measure import peak_bytes, peak_megabytes

from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.pyg import Networks
from oversmoothing.lab.data import csbm
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.tasks.nodes import memory

NORM = [LayerNorm]
SAMPLED = [partial(ContraNorm, negatives=256), LayerNorm]
# network, its options, aggregators, nodes, neighbours of a node, features, seeds
CASES = [
    (GCN, {"depth": 2, "hidden": 32}, [], 100_000, 10, 32, 1),
    (GCN, {"depth": 2, "hidden": 32}, NORM, 300_000, 10, 100, 1),
    (GCN, {"depth": 2, "hidden": 128}, NORM, 100_000, 40, 32, 1),
    (GCN, {"depth": 8, "hidden": 32}, NORM, 30_000, 10, 100, 5),
    (GCN, {"depth": 8, "hidden": 128}, NORM, 50_000, 10, 100, 1),
    (GCN, {"depth": 32, "hidden": 32}, NORM, 30_000, 10, 32, 1),
    (GCN, {"depth": 8, "hidden": 32}, SAMPLED, 50_000, 10, 32, 2),
    (Networks, {"depth": 2, "hidden": 32}, NORM, 100_000, 10, 100, 1),
    (Networks, {"depth": 8, "hidden": 32}, NORM, 20_000, 10, 32, 2),
    (Networks, {"depth": 4, "hidden": 64, "conv": "SAGEConv"}, NORM, 50_000, 20, 32, 1),
    (Networks, {"depth": 4, "hidden": 32, "conv": "GATConv"}, NORM, 50_000, 10, 32, 1),
]


def main() -> int:
    parser = record.parser_of(__doc__)
    parser.add_argument("--of", type=int, help=argparse.SUPPRESS)  # index of a case
    if (index := parser.parse_args().of) is not None:
        print(measured(index))
        return 0
    rows = []
    for index, (network, options, aggregators, *sizes) in enumerate(CASES):
        peak = peak_megabytes("--of", str(index))
        expected = memory.estimate(graph(index), *factory(index), sizes[-1]) / 1e6
        words = [network.__name__, *(f"{key}={value}" for key, value in options.items())]
        words += [f"{len(aggregators)} aggregators"]
        words += [f"{name} = {size:,}" for name, size in zip(("N", "degree", "F", "S"), sizes)]
        about = {"peer": "the estimate", "theirs": [expected]}
        rows.append(record.row(", ".join(words), "peak MB of two steps", [peak], **about))
        print(rows[-1]["work"], rows[-1]["ratio"]["median"], flush=True)
    record.save(rows)
    return int(not all(0.5 < row["ratio"]["median"] < 2 for row in rows))


def graph(index: int) -> Graph:
    *_, nodes, degree, features, _ = CASES[index]
    return csbm.generate(num_nodes=nodes, degree=degree, features=features)


def factory(index: int) -> tuple:
    network, options, aggregators, *_ = CASES[index]
    return partial(network, **options), aggregators


def measured(index: int) -> int:
    build, aggregators = factory(index)
    small = csbm.generate(num_nodes=1000, features=CASES[index][-2])
    steps(build, aggregators, small, 1)  # loads everything that is loaded once
    large = graph(index)
    seeds = CASES[index][-1]
    return peak_bytes(lambda: steps(build, aggregators, large, seeds), torch.device("cpu"))


def steps(build: partial, aggregators: list, graph: Graph, num_seeds: int) -> None:
    net = build(
        aggregators=aggregators,
        x=graph.x,
        edges=graph.edges,
        num_classes=graph.num_classes,
        seeds=list(range(num_seeds)),
    )
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        logits = net()[:, graph.train].flatten(0, 1)
        loss = F.cross_entropy(logits, graph.y[graph.train].repeat(num_seeds))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    run_script(main)
