"""GCNs of torch-geometric with 2 to 64 layers on four graphs, trained and at random initialisation.

python examples/diagnose_gcn.py                               # 3 seeds, 18 minutes on one core
python examples/diagnose_gcn.py --graphs cora --depths 2 16

The networks have 32 channels and are trained for 50 epochs (Adam, 0.01, no dropout).
They are measured after the last hidden layer; real_models.py measures three of them layer by layer.
"""

from statistics import mean

import panels
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_csr_tensor

import oversmoothing as osm
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.data.planetoid import load
from oversmoothing.lab.launch.script import run_script

GRAPHS = ("cora", "citeseer", "chameleon", "squirrel")
NAMES = {"cora": "Cora", "citeseer": "CiteSeer", "chameleon": "Chameleon", "squirrel": "Squirrel",
         "dirichlet_energy": "Dirichlet energy", "mad": "MAD"}  # fmt: skip
METRICS = ("cosine", "effective_rank", "dirichlet_energy", "mad")


def trained(graph: Graph, depth: int, epochs: int, seed: int) -> tuple[GCN, tuple]:
    """Returns a network and its inputs."""
    x = graph.x.to_dense()
    edges, weights = gcn_norm(graph.edges, num_nodes=len(x))
    torch.sparse.check_sparse_tensor_invariants.disable()  # torch warns if it is not told
    adjacency = to_torch_csr_tensor(edges, weights, size=len(x))
    torch.manual_seed(seed)
    gnn = GCN(x.shape[1], 32, depth, graph.num_classes, normalize=False)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(gnn(x, adjacency)[graph.train], graph.y[graph.train]).backward()
        optimizer.step()
    return gnn, (x, adjacency)


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    rows = []
    for name in options.graphs:
        graph = load(name, root=panels.ROOT)
        for depth in options.depths:
            for seed in options.seeds:
                rows += measured(graph, depth, options.epochs, seed)
                print(name, depth, seed, rows[-2][4:], flush=True)
    header = ("graph", "depth", "seed", "network", "accuracy", *METRICS)
    panels.write("gcn_depth", header, rows)
    draw(rows, options.graphs, options.depths)


def measured(graph: Graph, depth: int, epochs: int, seed: int) -> list[tuple]:
    """Returns rows for the trained network and for the network at random initialisation."""
    gnn, inputs = trained(graph, depth, epochs, seed)
    with torch.no_grad():
        right = (gnn(*inputs).argmax(1) == graph.y)[graph.test].float().mean().item()
    report = osm.diagnose(
        gnn, *inputs, edges=graph.edges, layers="convs.*", reference="random", seed=seed
    )
    last = depth - 2  # the last layer has one channel per class
    return [
        (graph.name, depth, seed, kind, accuracy, *(found[metric][last] for metric in METRICS))
        for kind, accuracy, found in (
            ("trained", round(100 * right, 2), report),
            ("random", "", report.reference),
        )
    ]


def draw(rows: list[tuple], graphs: list[str], depths: list[int]) -> None:
    """Draws means over seeds, with one row of panels per metric and one column per graph."""
    curves: dict[str, dict] = {}
    for i, metric in enumerate(METRICS):
        for graph in graphs:
            title = f"{NAMES[graph]}: {NAMES.get(metric, metric.replace('_', ' '))}"
            own = [row for row in rows if row[0] == graph]
            curves[title] = {
                kind: (depths, [means(own, depth, kind, 5 + i) for depth in depths])
                for kind in ("trained", "random")
            }
    log = [title for title in curves if title.endswith("energy")]
    panels.draw(
        "gcn_depth", curves, "layers", log_x=True, log_y=log, dashed=["random"], columns=len(graphs)
    )


def means(rows: list[tuple], depth: int, kind: str, column: int) -> float:
    """Returns the mean over seeds."""
    return mean(row[column] for row in rows if (row[1], row[3]) == (depth, kind))


if __name__ == "__main__":
    run_script(main)
