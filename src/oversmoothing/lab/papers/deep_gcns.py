"""Trains GCNs of 2 to 32 layers on a generated graph, for the claims on initial weights and norms.

oversmoothing figure deep_gcns
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from oversmoothing.aggregators.graphnorm import GraphNorm
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.papers import figure_parser
from oversmoothing.metrics.smoothness import mean_share

SEEDS = range(5)
GRAPH = {"num_nodes": 300, "num_classes": 3, "num_val": 60, "signal": 1.0, "homophily": 0.8}
WEIGHTS = ("uniform", "glorot", "normal", "orthogonal")
NORMS = {"none": [], "learned": [GraphNorm], "fixed": [GraphNorm]}
EPOCHS, RATE = 100, 0.01


def main(argv: list[str]) -> int:
    """Writes ``deep_gcns.csv``: every network before and after its training."""
    options = figure_parser(__doc__, pdf=False).parse_args(argv)
    rows = [row for words in settings() for row in trained(**words)]
    path = options.target / "deep_gcns.csv"
    print(write_csv(path, rows[0], (row.values() for row in rows)))
    return 0


def settings() -> Iterator[dict[str, Any]]:
    """Yields all initial weights without a norm, and both norms with Glorot's."""
    plain = {"adjacency": "row", "norm": "none"}
    for init in WEIGHTS:
        yield from ({**plain, "init": init, "depth": depth} for depth in (2, 4, 8, 16, 32))
    for adjacency, norm in product(("row", "symmetric"), ("learned", "fixed")):
        of_norm = {"adjacency": adjacency, "init": "glorot", "norm": norm}
        yield from ({**of_norm, "depth": depth} for depth in (8, 16))


def trained(
    depth: int, init: str, adjacency: str, norm: str, seeds: Sequence[int] = SEEDS
) -> list[dict[str, Any]]:
    """Trains a network for each seed.

    Returns:
        For each, before the training, the norm of the gradient of the first layer's weights and
        1 − mean_share of the last hidden layer, and the accuracy of the test nodes after it.
    """
    graph = generate(**GRAPH)
    named = {"init": init, "adjacency": adjacency, "norm": norm, "depth": depth}
    options = {"depth": depth, "init": init, "adjacency": adjacency}
    options |= {"dropout": 0.0, "share_aggregators": False}
    model = GCN(NORMS[norm], graph.x, graph.edges, graph.num_classes, [*seeds], **options)
    for own in model.modules():
        if norm == "fixed" and isinstance(own, GraphNorm):
            own.mean_scale.requires_grad_(False)
    hidden: list[Tensor] = []
    loss(model(hidden), graph).backward()
    gradients = model.weights[0].grad.flatten(1).norm(dim=1).tolist()
    spreads = (1 - mean_share(hidden[-2].detach().double())).tolist()
    fit(model, graph)
    with torch.no_grad():
        right = (model()[:, graph.test].argmax(dim=-1) == graph.y[graph.test]).double()
    accuracies = (100 * right.mean(dim=1)).tolist()
    return [
        {**named, "seed": seed, "gradient": gradient, "spread": spread, "test_accuracy": accuracy}
        for seed, gradient, spread, accuracy in zip(seeds, gradients, spreads, accuracies)
    ]


def loss(logits: Tensor, graph: Graph) -> Tensor:
    """Sums the losses of all networks, so that each has its own gradient."""
    y = graph.y[graph.train].expand(len(logits), -1)
    return cross_entropy(logits[:, graph.train].mT, y, reduction="sum") / y.shape[1]


def fit(model: GCN, graph: Graph) -> None:
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss(model(), graph).backward()
        optimizer.step()
