"""Semi-supervised node classification with all seeds of a cell trained together."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.data.graphs.graph import Graph, to_csr
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.nodes.loop import FullBatchLoop
from oversmoothing.tasks.nodes.recipe import FullBatchAdam


def run(
    data: Graph,
    backbone: Callable[..., nn.Module],
    aggregators: list[Callable[..., Aggregator]],
    trainer: FullBatchAdam,
    seeds: list[int],
    recorder: Recorder,
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
        recorder: takes logs and checkpoints.
        device: where to train.
        layer_metrics: at every evaluation measure how alike the nodes are after every layer.

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
    training = FullBatchLoop(model, graph, trainer, recorder, layer_metrics)
    training.fit()
    return dict(zip(seeds, training.chosen))


def probe(backbone: Callable[..., nn.Module], aggregators: list[Callable[..., Aggregator]]) -> None:
    """Builds the network on a graph of two nodes.

    Raises:
        InputError: what backbone and aggregators object to.
    """
    x, edges = to_csr(torch.eye(2)), torch.tensor([[0, 1], [1, 0]])
    backbone(aggregators=aggregators, x=x, edges=edges, num_classes=2, seeds=[0])
