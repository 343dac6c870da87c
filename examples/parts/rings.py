"""One ring of nodes for each class, joined by random edges."""

import torch

from oversmoothing.lab.data.graph import Graph, build


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
    return build(
        name="rings",
        x=x,
        y=y,
        edge_index=torch.cat([ring, chords], dim=1),
        masks=(part == 0, part == 1, part >= 2),
        num_nodes=num_nodes,
        checksum=f"{num_nodes}-{num_classes}-{noise}-{seed}",
    )
