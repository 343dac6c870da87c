"""Adam on the batches of torch-geometric's loaders: random nodes, clusters, neighbours."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from oversmoothing.checks import at_least, of, require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.tasks.nodes.minibatch import MiniBatchAdam, Sample, shuffled, to_data


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


@dataclass(frozen=True)
class ClusterAdam(MiniBatchAdam):
    """Adam on batches of torch-geometric's ClusterLoader, on parts made by METIS.

    Cluster-GCN (Chiang et al., KDD 2019): the parts have few edges in between.

    A batch has the nodes of some parts and all edges between these nodes. The adjacency is
    normalised by the degrees in the batch, as in the paper.

    Args:
        num_parts: number of parts into which METIS divides the graph.
        parts_per_batch: number of parts in a batch; they are drawn anew in every epoch.
    """

    num_parts: int = 50
    parts_per_batch: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require("trainer", **at_least(1, **of(self, "num_parts", "parts_per_batch")))
        if self.parts_per_batch > self.num_parts:
            raise InputError(
                f"trainer.parts_per_batch: expected at most trainer.num_parts={self.num_parts}, "
                f"got {self.parts_per_batch}"
            )

    def batches(self, graph: Graph, train: Tensor, generator: torch.Generator) -> list[Tensor]:
        if self.num_parts > graph.num_nodes:
            raise too_many_parts(self.num_parts, graph)
        return shuffled(torch.arange(self.num_parts), self.parts_per_batch, generator)

    def sampler(self, graph: Graph) -> Sample:
        from torch_geometric.loader import ClusterData, ClusterLoader

        class Parts(ClusterData):
            """ClusterData with pymetis; torch-geometric itself needs pyg-lib or torch-sparse."""

            def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
                return metis(edge_index, num_nodes, self.num_parts)

        parts = Parts(to_data(graph), self.num_parts, log=False)
        return ClusterLoader(parts).collate_fn


def metis(edge_index: Tensor, num_nodes: int, num_parts: int) -> Tensor:
    """Returns the part of every node, (N,); ignores directions of edges and self-loops.

    Raises:
        InputError: pymetis is missing.
    """
    try:
        import pymetis
    except ImportError as error:
        raise InputError(
            "trainer: METIS divides the graph; pip install pymetis, or draw the nodes of a part at "
            "random with trainer=minibatch_random"
        ) from error
    from torch_geometric.utils import remove_self_loops, to_undirected

    rows, columns = remove_self_loops(to_undirected(edge_index, num_nodes=num_nodes))[0]
    pointers = torch.bincount(rows, minlength=num_nodes).cumsum(0)
    pointers = torch.cat([pointers.new_zeros(1), pointers])
    graph = pymetis.CSRAdjacency(pointers.numpy(), columns.numpy())
    _, part = pymetis.part_graph(num_parts, graph, options=pymetis.Options(seed=0))
    return torch.tensor(part)


def too_many_parts(num_parts: int, graph: Graph) -> InputError:
    """Returns the error for more parts than nodes."""
    return InputError(
        f"trainer.num_parts: expected at most the {graph.num_nodes} nodes of data {graph.name}, "
        f"got {num_parts}"
    )


@dataclass(frozen=True)
class NeighborAdam(MiniBatchAdam):
    """Adam on batches of torch-geometric's NeighborLoader.

    GraphSAGE's sampling (Hamilton et al., NeurIPS 2017): training nodes with sampled neighbours.

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
