"""APPNP: an MLP for each node, then propagation (Klicpera et al., ICLR 2019)."""

import torch
from torch import Tensor, nn

from oversmoothing.adapters.sites import Factory, Sites
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.per_seed import Seeds
from oversmoothing.lab.backbones.sparse import Adjacency


class APPNP(nn.Module):
    """h ← (1 − α) Ã h + α MLP(x), once a layer; one network for each seed.

    Args:
        aggregators: factories, at the sites inside and after.
        x: sparse node features (N, F).
        edges: (2, E), both directions of every edge.
        num_classes: K.
        seeds: one for each network.
        depth: propagation steps.
        hidden: channels of the MLP.
        teleport: α, the weight of the MLP's output in every step.

    Raises:
        InputError: α out of range, or an aggregator that acts instead of the mixing.

    Shapes: ``forward()`` -> logits (S, N, K).
    """

    def __init__(
        self,
        aggregators: list[Factory],
        x: Tensor,
        edges: Tensor,
        num_classes: int,
        seeds: list[int],
        depth: int = 10,
        hidden: int = 32,
        teleport: float = 0.1,
    ) -> None:
        super().__init__()
        if not 0 <= teleport <= 1:
            raise InputError(f"backbone.teleport: expected 0 to 1, got {teleport}")
        self.x, self.depth, self.teleport = x.to_dense(), depth, teleport
        self.adjacency = Adjacency(edges, x.shape[0], "row", seeds=len(seeds))
        sites = Sites(aggregators, num_classes, "backbone appnp", ("inside", "after"))
        self.mlps, self.inside, self.after = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for _ in Seeds(seeds, x.device).seeded():  # each seed draws its own weights
            layers = nn.Linear(x.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, num_classes)
            self.mlps.append(nn.Sequential(*layers))
            self.inside.append(sites.build("inside", num_classes))
            self.after.append(sites.build("after", num_classes))

    def forward(self, hidden: list[Tensor] | None = None) -> Tensor:
        h = start = torch.stack([mlp(self.x) for mlp in self.mlps])
        context = self.adjacency.context
        for _ in range(self.depth):
            inside = zip(self.inside, self.adjacency(h), h)
            mixed = torch.stack([chain(m, v, context) for chain, m, v in inside])
            h = (1 - self.teleport) * mixed + self.teleport * start
            h = torch.stack([chain(own, context) for chain, own in zip(self.after, h)])
            if hidden is not None:
                hidden.append(h)
        return h
