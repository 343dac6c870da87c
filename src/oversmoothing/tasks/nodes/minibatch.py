"""Adam on parts of a graph: what the recipes of all loaders share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.data.graphs.graph import Graph
from oversmoothing.errors import InputError
from oversmoothing.tasks.nodes.minibatch_loop import MiniBatchLoop
from oversmoothing.tasks.nodes.recipe import FullBatchAdam

if TYPE_CHECKING:  # importing torch-geometric takes seconds
    from torch_geometric.data import Data

Sample = Callable[[Tensor], "Data"]


@dataclass(frozen=True)
class MiniBatchAdam(FullBatchAdam):
    """Adam on subgraphs. Subclasses choose these with a loader of torch-geometric.

    An epoch goes through all batches once, in an order that depends on seed and epoch. The graph
    stays in the host's memory; networks and batches are on the device. Evaluation runs on the whole
    graph, on the host.

    The arguments of ``FullBatchAdam`` are here, too. In addition:

    Args:
        mean: what ``aggregator=centered`` subtracts in training. Its gradient is always that of the
            batch's own mean.

            - ``exact``: the mean over all nodes of the whole graph, measured without dropout by a
              pass without gradient before every epoch. Its only bias is the age of the weights, at
              most an epoch. With one part per epoch it is that of full-batch training.
            - ``running``: a moving average over steps. No further pass is needed; it is older and
              noisier, and knows only the edges inside of the parts.
            - ``batch``: the mean over the batch, which differs from the exact one the more, the
              less a part resembles the whole graph.
        momentum: of ``running``, as of torch's BatchNorm.
        accumulate: batches whose gradients make one step. The processes of torchrun divide them, so
            that the result does not depend on the number of processes.

    Raises:
        InputError: an option out of range, or batches that do not divide among the processes.
    """

    loop: ClassVar[type[MiniBatchLoop]] = MiniBatchLoop
    on_host: ClassVar[bool] = True
    epochs: int = 50
    eval_every: int = 5
    mean: Literal["exact", "running", "batch"] = "exact"
    momentum: float = 0.1
    accumulate: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(1, "accumulate")
        if not 0 < self.momentum <= 1:
            raise InputError(
                f"trainer.momentum: expected above 0 and at most 1, got {self.momentum}; "
                "1 is trainer.mean=batch"
            )
        if self.accumulate % (world := distributed.world()):
            raise InputError(
                f"trainer.accumulate: {self.accumulate} batches a step do not divide among {world} "
                f"processes; set it to {world} or a multiple"
            )

    def require(self, least: int, *keys: str) -> None:
        """Raises InputError where one of these options is below ``least``."""
        for key in keys:
            if getattr(self, key) < least:
                raise InputError(
                    f"trainer.{key}: expected {least} or more, got {getattr(self, key)}"
                )

    def fits(self, network: nn.Module) -> None:
        if not hasattr(network, "nets"):
            raise InputError(
                f"trainer: {type(network).__name__} runs on the whole graph only; for training on "
                "parts of it, choose backbone=pyg"
            )

    def batches(self, graph: Graph, train: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Draws what ``sampler`` makes the batches of an epoch from.

        Args:
            graph: to be trained on.
            train: indices of the training nodes.
            generator: of random numbers.

        Raises:
            InputError: the graph is too small for the batches that are asked for.
        """
        raise NotImplementedError

    def sampler(self, graph: Graph) -> Sample:
        """Returns the function that makes an entry of ``batches`` a batch.

        Its attributes are those of torch-geometric's loaders: ``edge_index``, ``n_id`` (the nodes)
        and, if only the first nodes count, ``batch_size``; if the graph has weights also
        ``edge_weight``.

        Raises:
            InputError: a package is missing.
        """
        raise NotImplementedError


def shuffled(indices: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    """Divides indices at random into batches of ``size``; the last one may be smaller."""
    order = torch.randperm(len(indices), generator=generator)
    return [part.sort().values for part in indices[order].split(size)]


def to_data(graph: Graph) -> "Data":
    """The edges of a graph as torch-geometric's data, with the numbers of the nodes."""
    from torch_geometric.data import Data

    N = graph.num_nodes
    weights: dict[str, Any] = {} if graph.weights is None else {"edge_weight": graph.weights}
    return Data(edge_index=graph.edges.flip(0), n_id=torch.arange(N), num_nodes=N, **weights)
