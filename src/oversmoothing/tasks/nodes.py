"""Semi-supervised node classification with all seeds of a cell trained together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.data.graph import Graph
from oversmoothing.errors import InputError
from oversmoothing.runs import Run
from oversmoothing.tasks.node_training import Training


@dataclass(frozen=True)
class Trainer:
    """How the networks are trained: Adam, full batch.

    Args:
        epochs: optimisation steps.
        lr: learning rate.
        weight_decay: L2 penalty inside Adam, on every parameter.
        selection: ``last`` epoch's weights, or those of the ``best-val`` accuracy (the earliest
            of equals), per seed.
        eval_every: epochs between two evaluations; ``best-val`` chooses among these.

    Raises:
        InputError: epochs or eval_every below 1, or lr not above 0.
    """

    epochs: int = 200
    lr: float = 0.005
    weight_decay: float = 5e-4
    selection: Literal["last", "best-val"] = "last"
    eval_every: int = 20

    def __post_init__(self) -> None:
        for key in ("epochs", "eval_every"):
            if getattr(self, key) < 1:
                raise InputError(f"trainer.{key}: expected 1 or more, got {getattr(self, key)}")
        if not self.lr > 0:
            raise InputError(f"trainer.lr: expected a rate above 0, got {self.lr}")


def run(
    data: Graph,
    backbone: Callable[..., nn.Module],
    aggregators: list[Callable[..., Aggregator]],
    trainer: Trainer,
    seeds: list[int],
    run: Run,
    device: torch.device,
    layer_metrics: bool = False,
) -> dict[int, dict[str, Any]]:
    """Trains one network a seed on one graph.

    Args:
        data: the graph with its masks.
        backbone: builds the batch of networks from aggregators, x, edges, num_classes and seeds.
        aggregators: factories, in the order in which they act.
        trainer: the recipe.
        seeds: one network each.
        run: takes logs and checkpoints.
        device: where to train.
        layer_metrics: measure how alike the nodes are after every layer of the trained networks.

    Returns:
        Per seed: ``test_accuracy``, ``val_accuracy``, ``train_accuracy`` in percent, the ``epoch``
        they are from, and ``layers`` (metric -> value per layer) when asked for.
    """
    graph = data.to(device)
    model = backbone(
        aggregators=aggregators,
        x=graph.x,
        edges=graph.edges,
        num_classes=graph.num_classes,
        seeds=seeds,
    ).to(device)
    training = Training(model, graph, trainer, run)
    training.fit()
    results = dict(zip(seeds, training.chosen))
    if layer_metrics:
        for seed, layers in zip(seeds, training.layers()):
            results[seed]["layers"] = layers
    return results


def probe(backbone: Callable[..., nn.Module], aggregators: list[Callable[..., Aggregator]]) -> None:
    """Builds the network on a graph of two nodes.

    Raises:
        InputError: what backbone and aggregators object to.
    """
    x, edges = torch.eye(2).to_sparse_csr(), torch.tensor([[0, 1], [1, 0]])
    backbone(aggregators=aggregators, x=x, edges=edges, num_classes=2, seeds=[0])
