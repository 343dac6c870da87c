"""Graphs, and networks of torch-geometric's convolutions with aggregators."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import oversmoothing as osm

CLOSE = {"rtol": 0, "atol": 1e-10}


class Network(nn.Module):
    """Convolutions of one kind; the graph of every node is an argument."""

    def __init__(self, conv, depth: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(conv() for _ in range(depth))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).relu() + 0.1 * x
        return x


def graph(num_nodes: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, 2 * num_nodes), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    x = torch.randn(num_nodes, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1))


def network(conv, *aggregators, **options) -> Network:
    return osm.apply(Network(conv).double().eval(), list(aggregators), **options)
