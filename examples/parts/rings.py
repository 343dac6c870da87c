"""One ring of nodes for each class, joined by random edges."""

import torch

from oversmoothing.lab.data.graph import Graph, check_graph, symmetrised, to_csr


def load(num_nodes: int = 200, num_classes: int = 2, noise: float = 0.5, seed: int = 0) -> Graph:
    """Draws the graph; read your own files here.

    Args:
        num_nodes: N, a multiple of the number of classes.
        num_classes: rings.
        noise: standard deviation around the one-hot features.
        seed: of the graph.
    """
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.arange(num_nodes)
    y = nodes % num_classes
    ring = torch.stack([nodes, (nodes + num_classes) % num_nodes])
    chords = torch.randint(num_nodes, (2, num_nodes // 10), generator=generator)
    x = torch.nn.functional.one_hot(y).float()
    x = x + noise * torch.randn(x.shape, generator=generator)
    part = torch.randperm(num_nodes, generator=generator) % 4
    graph = Graph(
        name="rings",
        x=to_csr(x),
        y=y,
        edges=symmetrised(torch.cat([ring, chords], dim=1), num_nodes),
        num_classes=num_classes,
        train=part == 0,
        val=part == 1,
        test=part >= 2,
        checksum=f"{num_nodes}-{num_classes}-{noise}-{seed}",
    )
    return check_graph(graph)
