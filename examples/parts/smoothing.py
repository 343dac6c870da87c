"""How alike the nodes of a graph are, before and after training."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.tasks.base import Job, Parts, Result, Task
from oversmoothing.lab.tasks.nodes import FullBatchLoop, Nodes
from oversmoothing.metrics import smoothness


@dataclass(frozen=True)
class Smoothing(Task):
    """Trains graph networks and measures their last layer before and after.

    Args:
        metric: of the nodes' features.
    """

    metric: Literal["cosine", "effective_rank"] = "cosine"
    needs: ClassVar[tuple[str, ...]] = ("data", "backbone", "trainer")
    seeds_together: ClassVar[bool] = True
    toy: ClassVar[Graph] = Nodes.toy

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> nn.Module:
        graph = parts.data.to(device)
        network = parts.backbone(
            aggregators=parts.aggregators,
            x=graph.x,
            edges=graph.edges,
            num_classes=graph.num_classes,
            seeds=seeds,
        )
        return network.to(device)

    def run(self, network: nn.Module, job: Job) -> dict[int, Result]:
        graph = job.parts.data.to(job.device)
        before = self._measured(network)
        FullBatchLoop(network, graph, job.parts.trainer, job.recorder, layer_metrics=False).fit()
        after = self._measured(network)
        return {seed: {"before": before[i], "after": after[i]} for i, seed in enumerate(job.seeds)}

    @torch.no_grad()
    def _measured(self, network: nn.Module) -> list[float]:
        """One number a seed."""
        return getattr(smoothness, self.metric)(network.eval()()).tolist()
