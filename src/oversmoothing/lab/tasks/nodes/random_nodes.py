"""Batches of nodes that are drawn at random, with all edges between them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oversmoothing.checks import at_least, require
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.tasks.nodes.cluster import too_many_parts
from oversmoothing.lab.tasks.nodes.minibatch import MiniBatchAdam
from oversmoothing.lab.tasks.nodes.parts import Sample, shuffled, to_data


@dataclass(frozen=True)
class RandomNodeAdam(MiniBatchAdam):
    """Adam on batches of torch-geometric's RandomNodeLoader.

    Every epoch divides the nodes anew. A part keeps 1 / num_parts of a node's edges on average.

    Args:
        num_parts: number of parts of equal size into which the nodes are divided; each is a batch.
    """

    num_parts: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require("trainer", **at_least(1, num_parts=self.num_parts))

    def batches(self, graph: Graph, train: Tensor, generator: torch.Generator) -> list[Tensor]:
        if self.num_parts > (N := graph.num_nodes):
            raise too_many_parts(self.num_parts, graph)
        return shuffled(torch.arange(N), math.ceil(N / self.num_parts), generator)

    def sampler(self, graph: Graph) -> Sample:
        from torch_geometric.loader import RandomNodeLoader

        return RandomNodeLoader(to_data(graph), self.num_parts).collate_fn
