"""Semi-supervised node classification with all seeds of a cell trained together."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from oversmoothing.lab.data.graph import Graph, to_csr
from oversmoothing.lab.tasks.base import (
    Job,
    Parts,
    Result,
    Task,
    require_arguments,
    require_data,
    require_trainer,
)
from oversmoothing.lab.tasks.nodes.loop import FullBatchAdam, FullBatchLoop
from oversmoothing.lab.tasks.nodes.minibatch import MiniBatchLoop


def _two_nodes() -> Graph:
    """Returns the smallest graph that a network can be built for."""
    x, y, mask = to_csr(torch.eye(2)), torch.arange(2), torch.ones(2, dtype=torch.bool)
    return Graph("toy", x, y, torch.tensor([[0, 1], [1, 0]]), 2, mask, mask, mask, "")


@dataclass(frozen=True)
class Nodes(Task):
    """Trains one graph network per seed on one graph.

    Args:
        layer_metrics: measure the smoothness after every layer at every evaluation.
    """

    seeds_together: ClassVar[bool] = True
    toy: ClassVar[Any] = _two_nodes()
    layer_metrics: bool = False

    @classmethod
    def accept(cls, parts: Parts) -> None:
        known = "cora, citeseer, chameleon, squirrel, sbm, pyg or ogb"
        require_data(parts.data, Graph, f"task nodes needs a graph; choose data={known}")
        require_trainer(parts.trainer, FullBatchAdam, "nodes", "trainer=adam or minibatch_cluster")

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> nn.Module:
        """Builds the networks, one per seed.

        Raises:
            InputError: the data are not a graph, the backbone reads no graph, or backbone or
                aggregators refuse their options.
        """
        self.accept(parts)
        wanted = "choose backbone=gcn, gcnii, jknet or pyg"
        require_arguments(parts.backbone, ("x", "edges"), wanted)
        graph = _held(parts, device)
        model = parts.backbone(
            aggregators=parts.aggregators,
            x=graph.x,
            edges=graph.edges,
            num_classes=graph.num_classes,
            seeds=seeds,
            **({} if graph.weights is None else {"weights": graph.weights}),
        )
        return model.to(device)

    def check(self, network: nn.Module, parts: Parts) -> None:
        if parts.trainer is not None:
            parts.trainer.fits(network)

    def run(self, network: nn.Module, job: Job) -> dict[int, Result]:
        """Trains all networks at once.

        Returns:
            Per seed: ``test_accuracy``, ``val_accuracy``, ``train_accuracy`` in percent, the
            ``epoch`` they are from, and with ``layer_metrics`` also ``layers`` (metric -> value per
            layer).
        """
        graph, trainer = _held(job.parts, job.device), job.parts.trainer
        loop = loop_of(trainer)(network, graph, trainer, job.recorder, self.layer_metrics)
        loop.fit()
        return dict(zip(job.seeds, loop.chosen))


def loop_of(trainer: FullBatchAdam) -> type[FullBatchLoop]:
    """Returns the class of the training loop for a recipe."""
    return MiniBatchLoop if trainer.on_host else FullBatchLoop


def _held(parts: Parts, device: torch.device) -> Graph:
    """Returns the graph on the device that the recipe needs."""
    on_host = parts.trainer is not None and parts.trainer.on_host
    return parts.data.to("cpu" if on_host else device)
