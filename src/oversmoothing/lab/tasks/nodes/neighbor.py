"""GraphSAGE's sampling (Hamilton et al., NeurIPS 2017): training nodes with sampled neighbours."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.tasks.nodes.minibatch import MiniBatchAdam
from oversmoothing.lab.tasks.nodes.parts import Sample, shuffled, to_data


@dataclass(frozen=True)
class NeighborAdam(MiniBatchAdam):
    """Adam on batches of torch-geometric's NeighborLoader.

    The loss and the means ``running`` and ``batch`` use only the training nodes, with which a batch
    begins. ``exact`` is the mean over all nodes.

    Args:
        fanouts: number of sampled neighbours of a node for each layer, from the last layer to the
            first; -1: all.
        batch_size: number of training nodes in a batch.
    """

    fanouts: list[int] = field(default_factory=lambda: [10, 10])
    batch_size: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        require("trainer", **at_least(1, batch_size=self.batch_size))
        if any(fanout < 1 and fanout != -1 for fanout in self.fanouts):
            raise InputError(
                f"trainer.fanouts: expected numbers of 1 or more, or -1 for all neighbours, got "
                f"{list(self.fanouts)}"
            )

    def fits(self, network: nn.Module) -> None:
        super().fits(network)
        depth = sum(hasattr(module, "propagate") for module in network.nets[0].modules())
        if len(self.fanouts) != depth:
            raise InputError(
                f"trainer.fanouts: expected one number for each of the {depth} layers, got "
                f"{list(self.fanouts)}"
            )
        from torch_geometric import typing

        if not typing.WITH_PYG_LIB and not typing.WITH_TORCH_SPARSE:
            raise InputError(
                "trainer: neighbours are sampled by pyg-lib or torch-sparse; install one of them, "
                "or use trainer=minibatch_cluster"
            )

    def batches(self, graph: Graph, train: Tensor, generator: torch.Generator) -> list[Tensor]:
        if self.batch_size > len(train):
            raise InputError(
                f"trainer.batch_size: expected at most the {len(train)} training nodes of data "
                f"{graph.name}, got {self.batch_size}"
            )
        return shuffled(train, self.batch_size, generator)

    def sampler(self, graph: Graph) -> Sample:
        from torch_geometric.loader import NeighborLoader

        return NeighborLoader(to_data(graph), num_neighbors=list(self.fanouts))
