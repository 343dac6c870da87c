"""A GCN of torch-geometric with 16 layers on Cora, plain and with a method put into it.

python examples/pyg_cora.py                # five minutes on one core: 5 seeds of each
python examples/pyg_cora.py --symmetric    # GCNConv's own normalisation

The recipe is that of experiment=gnn_table5, which follows ContraNorm's code: rows of A + I divided
by their sum, hidden size 32, Adam with 0.005 and weight decay 5e-4, 200 epochs, last weights, and
all nodes outside the public training and validation sets as test nodes. Three things follow
torch-geometric instead: no dropout of input features, the initialisation, and a separate norm in
each layer. Existing self-loops are not counted twice.
"""

import statistics

import panels
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN
from torch_geometric.utils import add_remaining_self_loops, degree

import oversmoothing as osm
from oversmoothing.lab.data.planetoid import load
from oversmoothing.lab.launch.script import run_script

METHODS = {  # name: (norm of the layers, method, its options); the norms of Table 5
    "none": (None, None, {}),
    "LayerNorm": ("layernorm", None, {}),
    "PairNorm": (None, "pairnorm", {"mode": "PN-SI"}),
    "centered": ("layernorm", "centered", {"gamma": -1}),
}


def train(method: str, depth: int, symmetric: bool, seed: int) -> float:
    """Returns the test accuracy after 200 epochs, in percent."""
    graph = load("cora", root=panels.ROOT)
    x, y = graph.x.to_dense(), graph.y
    edges, _ = add_remaining_self_loops(graph.edges, num_nodes=len(y))
    weights = None if symmetric else 1 / degree(edges[1])[edges[1]]
    torch.manual_seed(seed)
    norm, name, options = METHODS[method]
    gnn = GCN(x.shape[1], 32, depth, graph.num_classes, dropout=0.6, normalize=symmetric,
              norm=torch.nn.LayerNorm(32) if norm else None)  # fmt: skip
    if name:
        osm.apply(gnn, name, **options)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=0.005, weight_decay=5e-4)
    for _ in range(200):
        gnn.train()
        optimizer.zero_grad()
        out = gnn(x, edges, edge_weight=weights)
        F.cross_entropy(out[graph.train], y[graph.train]).backward()
        optimizer.step()
    gnn.eval()
    with torch.no_grad():
        right = gnn(x, edges, edge_weight=weights).argmax(1) == y
    return 100 * right[graph.test].float().mean().item()


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--symmetric", action="store_true")
    options = parser.parse_args()
    rows = []
    for method in options.methods:
        for seed in options.seeds:
            accuracy = train(method, options.depth, options.symmetric, seed)
            rows.append((method, options.depth, seed, round(accuracy, 2)))
        found = [row[-1] for row in rows if row[0] == method]
        spread = statistics.stdev(found) if len(found) > 1 else float("nan")
        print(f"{method}: {statistics.mean(found):.2f} ± {spread:.2f} (n = {len(found)})")
    name = "pyg_cora_symmetric" if options.symmetric else "pyg_cora"
    panels.write(name, ("method", "depth", "seed", "accuracy"), rows)


if __name__ == "__main__":
    run_script(main)
