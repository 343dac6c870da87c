"""Small networks of graph convolutions for several seeds, on a random graph."""

from functools import partial

import torch
from torch import Tensor

from oversmoothing.lab.backbones.decoupled import DAGNN, GPRGNN
from oversmoothing.lab.backbones.dynamics import G2, GraphCON
from oversmoothing.lab.backbones.engine import Engine
from oversmoothing.lab.backbones.gcn import GCN, GCNII, JKNet

N, F, CLASSES = 30, 12, 3
KINDS = {
    "gcn": GCN,
    "gcnii": GCNII,
    "jknet-cat": JKNet,
    "jknet-max": partial(JKNet, jumping="max"),
    "gprgnn": GPRGNN,
    "dagnn": DAGNN,
    "graphcon": partial(GraphCON, linear=True),
    "g2": G2,
    "g2-untied": partial(G2, p=1.5, own_gate=False, share_weights=False),
    "drop_edge": partial(GCN, drop_edge=0.5),
    "drop_node": partial(GCN, drop_node=0.5),
    "drop_message": partial(GCN, drop_message=0.5, drop_edge=0.2),
    "gcnii-drops": partial(GCNII, drop_message=0.4, drop_node=0.2, drop_input=False),
    "symmetric": partial(GCN, drop_edge=0.5, adjacency="symmetric"),
}


def graph() -> tuple[Tensor, Tensor]:
    """Features (N, F), half of them 0, and both directions of random edges."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, F, generator=generator).mul_(torch.rand(N, F, generator=generator) > 0.5)
    adjacency = torch.rand(N, N, generator=generator) > 0.85
    adjacency = (adjacency | adjacency.T).fill_diagonal_(False)
    return x, adjacency.nonzero().T


def network(
    kind: str = "gcn", *aggregators: object, seeds: tuple = (0,), sparse: bool = True, **options
) -> Engine:
    x, edges = graph()
    x = x.to_sparse_csr() if sparse else x
    return KINDS[kind]([*aggregators], x, edges, CLASSES, [*seeds], **options)
