"""Measures the test accuracy of ContraNorm's GCNs with the authors' code and recipe.

    git clone https://github.com/PKU-ML/ContraNorm
    DATA_ROOT=… python benchmarks/official_accuracy.py ContraNorm/gnn --method contranorm --depth 16
    DATA_ROOT=… python benchmarks/official_accuracy.py ContraNorm/gnn --method layernorm --depth 8

Layers and network are the authors'. Graph, split and adjacency are ours, which equal theirs. The
test accuracy is that of the last of 200 epochs, as in their main.py. Each seed has a line in
official_gcn.csv, in outputs/ or with --publish in results/; seeds that have one are skipped.
"""

import argparse
import csv
import io
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from cells import adam, step
from official_gcn import OFFICIAL_NORMS, official
from record import RESULTS, parser_of
from reference_gcn import HIDDEN, adjacency
from torch import nn

from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.report.numbers import update
from oversmoothing.lab.store.files import write_text

FILE = "official_gcn.csv"
KEYS = ("data", "method", "scale", "depth", "seed")
EPOCHS = 200


def main() -> None:
    options = arguments()
    graph: Graph = build(compose_config([f"data={options.data}"]).data)
    for seed in options.seeds:
        cell = (options.data, options.method, f"{options.scale:g}", options.depth, seed)
        lines = recorded(options.target / FILE) or recorded(RESULTS / FILE)
        if any(all(line[k] == str(v) for k, v in zip(KEYS, cell)) for line in lines):
            continue
        start, net = time.process_time(), made(options, graph, seed)
        test, train = trained(net, graph)
        measured = {
            "test_accuracy": f"{test:.2f}",
            "train_accuracy": f"{train:.2f}",
            "cpu_seconds": round(time.process_time() - start),
            "torch": torch.__version__,
        }
        write(options.target / FILE, [*lines, dict(zip(KEYS, map(str, cell))) | measured])
        print(f"{' '.join(map(str, cell))}: test accuracy {test:.2f} %, training {train:.2f} %")
    print(options.target / FILE, *update(options.target), sep="\n")


def made(options: argparse.Namespace, graph: Graph, seed: int) -> nn.Module:
    """Builds the authors' network with new weights."""
    torch.manual_seed(seed)
    dims = [graph.x.shape[1], *[HIDDEN] * (options.depth - 1), graph.num_classes]
    return official(options.folder, options.method, dims, options.scale)


def trained(net: nn.Module, graph: Graph) -> tuple[float, float]:
    """Returns test and training accuracy in percent after the last epoch."""
    x, adj, optimizer = graph.x.to_dense(), adjacency(graph), adam(net)
    for _ in range(EPOCHS):
        logits = net.train()(x, adj)
        step(optimizer, F.cross_entropy(logits[graph.train], graph.y[graph.train]))
    with torch.no_grad():
        right = net.eval()(x, adj).argmax(dim=1) == graph.y
    return tuple(100 * right[mask].float().mean().item() for mask in (graph.test, graph.train))


def recorded(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8")))) if path.exists() else []


def write(path: Path, lines: list[dict]) -> None:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(lines[-1]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write_text(path, out.getvalue())


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="gnn folder of a ContraNorm checkout")
    parser.add_argument("--data", default="cora", choices=["cora", "citeseer"])
    parser.add_argument("--method", default="contranorm", choices=list(OFFICIAL_NORMS))
    parser.add_argument("--scale", type=float, default=1.0, help="s of ContraNorm and PairNorm")
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
