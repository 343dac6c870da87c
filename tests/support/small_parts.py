"""A graph of 40 nodes and networks of it, for tests of training on parts of a graph."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.backbones.pyg import Networks
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchAdam

N, F, K, SEEDS = 40, 6, 3, [0, 1]


def graph(weighted: bool = False) -> Graph:
    generator = torch.Generator().manual_seed(0)
    upper = (torch.rand(N, N, generator=generator) < 0.15).triu(1)
    edges = (upper | upper.T).nonzero().T
    weights = (edges.sum(dim=0) + 1).double() if weighted else None
    y, mask = torch.arange(N) % K, torch.arange(N) < 25
    x = torch.randn(N, F, generator=generator, dtype=torch.float64)
    return Graph("toy", x, y, edges, K, mask, ~mask, ~mask, "", weights)


def networks(given: Graph, gamma: float | None = -0.5, **options: Any) -> Networks:
    options = {"depth": 3, "hidden": 8, "dropout": 0.0} | options
    own = {} if given.weights is None else {"weights": given.weights}
    x = given.x.float()
    aggregators = [] if gamma is None else [partial(Centered, gamma)]
    made = Networks(aggregators, x, given.edges, K, SEEDS, **own, **options).double()
    made.x = given.x
    return made


def looped(trainer: FullBatchAdam, folder: Path, given: Graph, **options: Any) -> Any:
    recorder = Recorder(folder, SEEDS, checkpoint_seconds=0)
    return trainer.loop()(networks(given, **options), given, trainer, recorder, False)


def weights(loop: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in loop.model.parameters()])


def trained(trainer: FullBatchAdam, folder: Path, **options: Any) -> tuple[Tensor, list[dict]]:
    loop = looped(trainer, folder, graph(), **options)
    loop.fit()
    return weights(loop), loop.chosen


def batches(trainer: Any, given: Graph) -> list[Any]:
    drawn = trainer.batches(given, given.train.nonzero()[:, 0], torch.Generator().manual_seed(3))
    sample = trainer.sampler(given)
    return [sample(index) for index in drawn]
