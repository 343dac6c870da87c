"""A graph that needs no download: the contextual stochastic block model.

Deshpande et al., 2018, "Contextual Stochastic Block Models" (https://arxiv.org/abs/1807.09596),
with more than two classes.
"""

import hashlib
import json

import torch
from torch import Tensor

from oversmoothing.data.checks import at_least, require
from oversmoothing.data.graphs.graph import Graph, check_graph, symmetrised, to_csr
from oversmoothing.errors import InputError


def generate(
    num_nodes: int = 1000,
    num_classes: int = 5,
    degree: float = 10.0,
    homophily: float = 0.6,
    features: int = 100,
    signal: float = 0.2,
    train_per_class: int = 20,
    num_val: int = 200,
    seed: int = 0,
) -> Graph:
    r"""Draws a graph; the same arguments give the same graph.

    Classes are equally large up to one node. Every pair of nodes is joined independently, with one
    probability inside a class and another across, which follow from ``degree`` and ``homophily``.
    Features are class means under noise,

    .. math:: B_i = s\, u_{y_i} + Z_i / \sqrt F, \quad u_k \sim N(0, I / F), \; Z_i \sim N(0, I),

    so that :math:`s` is the length of a class mean over the length of the noise
    (:math:`\sqrt{\mu / n}` in the paper, which has two classes with means u and -u).

    Args:
        num_nodes: N.
        num_classes: 2 or more.
        degree: expected number of neighbours of a node.
        homophily: expected fraction of edges inside a class; 1 / num_classes carries no label.
        features: F.
        signal: s; 0 leaves the features without any label.
        train_per_class: training nodes of every class, drawn at random.
        num_val: validation nodes, drawn from the others; the rest are test nodes.
        seed: of the graph, not of the networks that are trained on it.

    Raises:
        InputError: an argument out of its range, or nodes or pairs that do not suffice.
    """
    arguments = dict(locals())
    needed = num_classes * (train_per_class + 1) + num_val  # leaves test nodes
    require(
        "data",
        **at_least(2, num_classes=num_classes),
        degree=(degree, 0 < degree < float("inf"), "a number above 0"),
        homophily=(homophily, 0 <= homophily <= 1, "0 to 1"),
        **at_least(1, features=features),
        signal=(signal, 0 <= signal < float("inf"), "a number of 0 or more"),
        **at_least(1, train_per_class=train_per_class, num_val=num_val),
        seed=(seed, 0 <= seed < 2**63, "0 to 2**63 - 1"),
        num_nodes=(num_nodes, num_nodes >= needed, f"{needed} or more here"),
    )
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(num_nodes) % num_classes
    y = y[torch.randperm(num_nodes, generator=generator)]
    inside, across = _probabilities(y, degree, homophily)
    edges = _edges(y, inside, across, generator)
    train, val, test = _masks(y, num_classes, train_per_class, num_val, generator)
    text = json.dumps(arguments, sort_keys=True)
    graph = Graph(
        name="sbm",
        x=to_csr(_features(y, num_classes, features, signal, generator)),
        y=y,
        edges=symmetrised(edges, num_nodes),
        num_classes=num_classes,
        train=train,
        val=val,
        test=test,
        checksum=hashlib.sha256(text.encode()).hexdigest()[:12],
    )
    return check_graph(graph)


def _probabilities(y: Tensor, degree: float, homophily: float) -> tuple[float, float]:
    """Probability of an edge inside a class and across, from expected numbers of edges."""
    N = y.shape[0]
    sizes = y.bincount()
    pairs_inside = int((sizes * (sizes - 1) // 2).sum())
    pairs_across = N * (N - 1) // 2 - pairs_inside
    inside = homophily * degree * N / 2 / pairs_inside
    across = (1 - homophily) * degree * N / 2 / pairs_across
    if max(inside, across) > 1:
        raise InputError(
            f"data.degree: {degree} neighbours a node with data.homophily={homophily} need more "
            f"pairs than {N} nodes in {len(sizes)} classes have; lower it or raise data.num_nodes"
        )
    return inside, across


def _edges(y: Tensor, inside: float, across: float, generator: torch.Generator) -> Tensor:
    """Every pair i < j by its own coin, row by row: memory stays linear. (N,) -> (2, E)."""
    columns = []
    for i in range(y.shape[0]):
        same = y[i + 1 :] == y[i]
        coins = torch.rand(same.shape[0], generator=generator, dtype=torch.float64)
        columns.append((coins < torch.where(same, inside, across)).nonzero()[:, 0] + i + 1)
    rows = torch.repeat_interleave(torch.tensor([len(c) for c in columns]))
    return torch.stack([rows, torch.cat(columns)])


def _features(
    y: Tensor, num_classes: int, features: int, signal: float, generator: torch.Generator
) -> Tensor:
    """Class means under noise. Shapes: y (N,) -> (N, F)."""
    u = torch.randn(num_classes, features, generator=generator)
    Z = torch.randn(y.shape[0], features, generator=generator)
    return (signal * u[y] + Z) / features**0.5


def _masks(
    y: Tensor, num_classes: int, train_per_class: int, num_val: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Training, validation and test nodes: y (N,) -> three boolean (N,), disjoint and complete."""
    train, val = torch.zeros_like(y, dtype=torch.bool), torch.zeros_like(y, dtype=torch.bool)
    order = torch.randperm(y.shape[0], generator=generator)
    for label in range(num_classes):
        train[order[y[order] == label][:train_per_class]] = True
    val[order[~train[order]][:num_val]] = True
    return train, val, ~(train | val)
