"""Trains GCNs of 2 to 32 layers for the claims on initial weights and norms.

oversmoothing figure deep_gcns

On the generated graph, most networks have 98 % or more. So the norms are also compared on Chameleon
without duplicate nodes, with one of its ten official splits for each seed.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from oversmoothing.aggregators.graphnorm import GraphNorm
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.data import heterophilous
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.papers import figure_parser
from oversmoothing.metrics.smoothness import mean_share

SEEDS, SPLITS = range(5), range(10)
REAL = "chameleon_filtered"
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
    """Yields all initial weights without a norm, and both norms with Glorot's on two graphs."""
    plain = {"adjacency": "row", "norm": "none"}
    for init in WEIGHTS:
        yield from ({**plain, "init": init, "depth": depth} for depth in (2, 4, 8, 16, 32))
    for adjacency, norm in product(("row", "symmetric"), ("learned", "fixed")):
        of_norm = {"adjacency": adjacency, "init": "glorot", "norm": norm}
        yield from ({**of_norm, "depth": depth} for depth in (8, 16))
        real = {**of_norm, "graph": REAL, "seeds": SPLITS}
        yield from ({**real, "depth": depth} for depth in (8, 16))


def trained(
    depth: int,
    init: str,
    adjacency: str,
    norm: str,
    graph: str = "generated",
    seeds: Sequence[int] = SEEDS,
) -> list[dict[str, Any]]:
    """Trains a network for each seed.

    Returns:
        For each, before the training, the norm of the gradient of the first layer's weights and
        1 − mean_share of the last hidden layer, and the accuracy of the test nodes after it.
    """
    named = {"graph": graph, "init": init, "adjacency": adjacency, "norm": norm, "depth": depth}
    graph = loaded(graph, seeds)
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
        right = (model().argmax(dim=-1) == graph.y).double()
    accuracies = [100 * float(own[mask].mean()) for own, mask in zip(right, graph.test)]
    return [
        {**named, "seed": seed, "gradient": gradient, "spread": spread, "test_accuracy": accuracy}
        for seed, gradient, spread, accuracy in zip(seeds, gradients, spreads, accuracies)
    ]


def loaded(name: str, seeds: Sequence[int]) -> Graph:
    """Returns a graph whose masks are (S, N), one for each seed."""
    if name == "generated":
        graph, splits = generate(**GRAPH), [0] * len(seeds)
    else:
        graph, splits = heterophilous.load(name, root=os.environ.get("DATA_ROOT") or "data"), seeds
    masks = {part: getattr(graph, part).view(-1, len(graph.y)) for part in ("train", "val", "test")}
    return replace(graph, **{part: mask[[*splits]] for part, mask in masks.items()})


def of_nodes(x: Tensor, masks: Tensor) -> Tensor:
    """Selects n nodes of each seed. Shapes: x (S, N, ...), masks (S, N) -> (S, n, ...)."""
    return x[masks].unflatten(0, (len(x), -1))


def loss(logits: Tensor, graph: Graph) -> Tensor:
    """Sums the losses of all networks, so that each has its own gradient."""
    y = of_nodes(graph.y.expand(len(logits), -1), graph.train)
    own = of_nodes(logits, graph.train)
    return cross_entropy(own.mT, y, reduction="sum") / y.shape[1]


def fit(model: GCN, graph: Graph) -> None:
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss(model(), graph).backward()
        optimizer.step()
