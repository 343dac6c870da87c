"""Small networks of torch-geometric's convolutions, on a random graph."""

from typing import Any

import torch
from torch import Tensor

from oversmoothing.lab.backbones.pyg import Networks

N, F, CLASSES = 30, 12, 3
CONVS: dict[str, dict[str, Any]] = {  # every convolution that needs no more than a graph has
    "AGNNConv": {},
    "APPNP": {"K": 3, "alpha": 0.1},
    "ARMAConv": {"num_layers": 2, "shared_weights": True},
    "CGConv": {},
    "ChebConv": {"K": 2},
    "ClusterGCNConv": {},
    "EGConv": {"num_heads": 1},
    "EdgeConv": {},
    "FAConv": {},
    "FeaStConv": {"heads": 2},
    "FiLMConv": {},
    "GATConv": {"heads": 4},
    "GATv2Conv": {"heads": 2, "concat": False},
    "GCN2Conv": {},
    "GCNConv": {},
    "GENConv": {},
    "GINConv": {"train_eps": True},
    "GatedGraphConv": {"num_layers": 2},
    "GeneralConv": {},
    "GraphConv": {},
    "LEConv": {},
    "LGConv": {},
    "MFConv": {"max_degree": 0},
    "MixHopConv": {"powers": [1]},
    "PNAConv": {"aggregators": ["mean", "std"], "scalers": ["identity", "amplification"]},
    "ResGatedGraphConv": {},
    "SAGEConv": {},
    "SGConv": {"K": 2},
    "SSGConv": {"alpha": 0.1},
    "SimpleConv": {"aggr": "mean"},
    "SuperGATConv": {"heads": 2},
    "TAGConv": {"K": 2},
    "TransformerConv": {"heads": 2},
    "WLConvContinuous": {},
}


def graph(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features (N, F) and both directions of random edges, with two self-loops."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(N, F, generator=generator).mul_(torch.rand(N, F, generator=generator) > 0.5)
    adjacency = torch.rand(N, N, generator=generator) > 0.85
    adjacency = (adjacency | adjacency.T).fill_diagonal_(False)
    adjacency[3, 3] = adjacency[7, 7] = True
    return x, adjacency.nonzero().T


def networks(
    conv: str = "GCNConv", aggregators: Any = (), seeds: Any = (0,), **options
) -> Networks:
    x, edges = graph()
    defaults = {"depth": 3, "hidden": 8, "options": CONVS.get(conv, {})}
    return Networks([*aggregators], x, edges, CLASSES, [*seeds], conv=conv, **defaults | options)
