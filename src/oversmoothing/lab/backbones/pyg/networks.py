"""The networks of several seeds on one graph, computed one after another."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.sites import Factory
from oversmoothing.lab.backbones.per_seed import Seeds
from oversmoothing.lab.backbones.pyg.convs import degrees_of
from oversmoothing.lab.backbones.pyg.design import Adjacency, Design, Jumping, Skip
from oversmoothing.lab.backbones.pyg.network import Network


class Networks(nn.Module):
    """The networks of several seeds on one graph; the seeds do not influence each other.

    Args:
        aggregators: factories, applied in their order at their sites.
        x: node features, dense or CSR, (N, F).
        edges: row and column of every entry of the adjacency, (2, E).
        num_classes: number of outputs K.
        seeds: one for each network; seeds its weights and its random numbers in training.
        conv: name of a class of ``torch_geometric.nn``.
        options: of the convolution.
        depth: number of convolutions L.
        hidden: channels of all layers but the last.
        dropout: rate before every layer, also for input features.
        skip: ``residual``: h + layer(h). ``initial``: GCNII's initial residual and identity map.
        interval: for ``residual``: layers between two sums, as ``residual`` of ``backbone=gcn``.
        alpha: for ``initial`` and GCN2Conv: weight α of the initial features.
        lam: for ``initial`` and GCN2Conv: λ of the identity map, whose weight in layer l is
            log(λ/l + 1); 0: no identity map.
        jumping: how the outputs of all layers are combined for the readout (Xu et al., ICML 2018).
        drop_edge: rate at which a training step leaves out edges, the same in all layers, both
            directions of an edge together (Rong et al., ICLR 2020).
        adjacency: ``conv``: as the convolution normalises it; ``row``: D⁻¹(A + I);
            ``symmetric``: D^-½(A + I)D^-½.
        share_aggregators: use one instance of each aggregator in all layers that have the same
            numbers of channels; otherwise each layer has its own.
        weights: of the edges, (E,); None if all are 1.

    Raises:
        InputError: an option is out of range, the convolution does not exist or needs more than
            the graph has, or aggregators do not fit it.

    Shapes: ``forward()`` -> logits (S, N, num_classes).
    """

    def __init__(
        self,
        aggregators: list[Factory],
        x: Tensor,
        edges: Tensor,
        num_classes: int,
        seeds: list[int],
        conv: str = "GCNConv",
        options: dict[str, Any] | None = None,
        depth: int = 2,
        hidden: int = 32,
        dropout: float = 0.6,
        skip: Skip = "none",
        interval: int = 1,
        alpha: float = 0.1,
        lam: float = 0.5,
        jumping: Jumping = "none",
        drop_edge: float = 0.0,
        adjacency: Adjacency = "conv",
        share_aggregators: bool = True,
        weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        design = Design(
            conv=conv, options=options or {}, depth=depth, hidden=hidden, dropout=dropout,
            skip=skip, interval=interval, alpha=alpha, lam=lam, jumping=jumping,
            drop_edge=drop_edge, adjacency=adjacency, share_aggregators=share_aggregators,
        )  # fmt: skip
        self.x, self.edge_index, self.edge_weight = x, edges.flip(0), weights
        self.seeds = Seeds(seeds, x.device)
        degrees = degrees_of(self.edge_index, len(x))
        self.nets = nn.ModuleList(
            Network(aggregators, x, num_classes, design, degrees, weights is not None)
            for _ in self.seeds.seeded()
        ).to(x.device)

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        """Computes the logits (S, N, K); appends every layer's output (S, N, C) to ``hidden``."""
        logits, layers = [], []
        for index, net in enumerate(self.nets):
            outputs: list[Tensor] | None = None if hidden is None else []
            with self._drawing(index):
                logits.append(net(self.x, self.edge_index, self.edge_weight, outputs))
            layers.append(outputs)
        if hidden is not None:
            hidden.extend(torch.stack(outputs) for outputs in zip(*layers))
        return torch.stack(logits)

    @contextmanager
    def _drawing(self, index: int) -> Iterator[None]:
        """Context in which torch's global generator continues the random numbers of a seed."""
        own, device = self.seeds.generators[index], self.seeds.device
        random = torch.cuda if device.type == "cuda" else torch.random
        of = (device,) if device.type == "cuda" else ()
        with torch.random.fork_rng(devices=of):
            random.set_rng_state(own.get_state(), *of)
            yield
            own.set_state(random.get_rng_state(*of))
