"""Adam on parts of a graph: the base of the recipes of all loaders."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.tasks.nodes.parts import Sample
from oversmoothing.lab.tasks.nodes.recipe import FullBatchAdam


@dataclass(frozen=True)
class MiniBatchAdam(FullBatchAdam):
    """Adam on subgraphs; subclasses choose the subgraphs with a loader of torch-geometric.

    An epoch uses all batches once, in an order that depends on seed and epoch. The graph stays in
    the host's memory; networks and batches are on the device. Evaluation runs on the whole graph,
    on the host.

    These arguments are added to those of ``FullBatchAdam``.

    Args:
        mean: the mean that ``aggregator=centered`` subtracts in training. Its gradient is always
            that of the batch's own mean.

            - ``running``: a moving average of the means of batches. It lags about 1/momentum steps
              behind the weights. Like the batches, it does not use the edges between parts, so it
              centers a batch around 0. On METIS parts it trains as well as ``batch``, with less
              noise from step to step, so it is the default.
            - ``batch``: the mean over the batch. It does not lag, but changes with every batch.
            - ``exact``: the mean over the whole graph, with all edges and without dropout, from a
              pass without gradient before every epoch. It lags by up to one epoch. Batches lack the
              edges between parts, so their means differ from it; METIS parts train worse with it.
        momentum: weight of the newest batch in ``running``, as in torch's BatchNorm.
        accumulate: number of batches per optimization step. The processes of torchrun share them,
            so the result does not depend on the number of processes.

    Raises:
        InputError: an option is out of range, or batches do not divide among the processes.
    """

    on_host: ClassVar[bool] = True
    epochs: int = 50
    eval_every: int = 5
    mean: Literal["running", "batch", "exact"] = "running"
    momentum: float = 0.1
    accumulate: int = 1
    compile: bool = field(default=False, init=False)  # batches have different sizes

    def __post_init__(self) -> None:
        super().__post_init__()
        require("trainer", **at_least(1, accumulate=self.accumulate))
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

    def fits(self, network: nn.Module) -> None:
        super().fits(network)
        if not hasattr(network, "nets"):
            raise InputError(
                f"trainer: {type(network).__name__} runs on the whole graph only; for training on "
                "parts of it, choose backbone=pyg"
            )

    def batches(self, graph: Graph, train: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Draws the arguments of ``sampler`` for the batches of an epoch.

        Args:
            graph: to be trained on.
            train: indices of the training nodes.
            generator: of random numbers.

        Raises:
            InputError: the graph is too small for such batches.
        """
        raise NotImplementedError

    def sampler(self, graph: Graph) -> Sample:
        """Returns the function that converts an entry of ``batches`` to a batch.

        A batch has the attributes of torch-geometric's loaders: ``edge_index``, ``n_id`` (the
        nodes), ``batch_size`` if only the first nodes are for training, and ``edge_weight`` if the
        graph has weights.

        Raises:
            InputError: a package is missing.
        """
        raise NotImplementedError
