"""A GCN of torch-geometric with 32 layers on Cora, plain and with methods put into it.

python examples/deep_gcn.py                              # 5 seeds of each
python examples/deep_gcn.py --methods none initial_residual --seeds 0
python examples/deep_gcn.py --network GAT --depth 8      # writes deep_gat.csv; also GraphSAGE

The graph and the test are those of `make cures`: rows of A + I divided by their sum, hidden size
32, Adam with weight decay 5e-4. Every fifth of at most 150 epochs is evaluated, the network of the
one with the highest validation accuracy is tested, and training stops 100 epochs after it. The
network is torch-geometric's: it has weights in every convolution, and no linear layers before and
after them. Dropout, learning rate and α were chosen by the validation accuracy of seed 0 among a
few, in the GCN of 32 layers; GraphSAGE and GAT get the same, and weigh the edges themselves.
"""

import statistics

import panels
import torch
import torch.nn.functional as F
from torch_geometric.nn import GAT, GCN, GraphSAGE
from torch_geometric.utils import add_remaining_self_loops, degree

import oversmoothing as osm
from oversmoothing.lab.data.planetoid import load
from oversmoothing.lab.launch.script import run_script

NETWORKS = {  # name: class, its options
    "GCN": (GCN, {"normalize": False}),
    "GraphSAGE": (GraphSAGE, {}),
    "GAT": (GAT, {"add_self_loops": False}),
}
METHODS = {  # names: dropout, learning rate, options of the method
    "none": (0.2, 0.01, {}),
    "drop_edge": (0.2, 0.01, {"rate": 0.3}),
    "residual": (0.0, 0.002, {}),
    "layernorm+residual": (0.5, 0.01, {}),
    "jumping": (0.2, 0.01, {"mode": "max"}),
    "initial_residual": (0.2, 0.01, {"alpha": 0.5, "lam": 0.5}),
}


def train(
    network: str, method: str, depth: int, epochs: int, seed: int
) -> tuple[int, float, float]:
    """Returns epoch, validation accuracy and test accuracy of the best epoch, in percent."""
    graph = load("cora", root=panels.ROOT)
    x, y = graph.x.to_dense(), graph.y
    edges, _ = add_remaining_self_loops(graph.edges, num_nodes=len(y))
    mean = {"edge_weight": 1 / degree(edges[1])[edges[1]]} if network == "GCN" else {}
    dropout, rate, options = METHODS[method]
    torch.manual_seed(seed)
    kind, own = NETWORKS[network]
    gnn = kind(x.shape[1], 32, depth, graph.num_classes, dropout=dropout, **own)
    if method != "none":
        osm.apply(gnn, method.split("+") if "+" in method else method, **options)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=rate, weight_decay=5e-4)
    best = (0, 0.0, 0.0)
    for epoch in range(1, 1 + epochs):
        gnn.train()
        optimizer.zero_grad()
        out = gnn(x, edges, **mean)
        F.cross_entropy(out[graph.train], y[graph.train]).backward()
        optimizer.step()
        if epoch % 5:
            continue
        gnn.eval()
        with torch.no_grad():
            right = (gnn(x, edges, **mean).argmax(1) == y).float()
        valid, test = (100 * right[mask].mean().item() for mask in (graph.val, graph.test))
        best = (epoch, valid, test) if valid > best[1] else best
        if epoch >= best[0] + 100:
            break
    return best


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--network", choices=NETWORKS, default="GCN")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=150)
    options = parser.parse_args()
    rows = []
    for method in options.methods:
        for seed in options.seeds:
            epoch, valid, test = train(options.network, method, options.depth, options.epochs, seed)
            rows.append((method, options.depth, seed, epoch, round(valid, 2), round(test, 2)))
            print(rows[-1], flush=True)
        found = [row[-1] for row in rows if row[0] == method]
        spread = statistics.stdev(found) if len(found) > 1 else float("nan")
        print(f"{method}: {statistics.mean(found):.1f} ± {spread:.1f} (n = {len(found)})")
    header = ("method", "depth", "seed", "epoch", "val_accuracy", "accuracy")
    panels.write(f"deep_{options.network.lower()}", header, rows)


if __name__ == "__main__":
    run_script(main)
