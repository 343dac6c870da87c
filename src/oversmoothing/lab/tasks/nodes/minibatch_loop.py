"""The training loop of node classification on parts of a graph, by one process or several."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.aggregators.base import advance, settle
from oversmoothing.aggregators.contranorm import begin_part
from oversmoothing.aggregators.running_mean import measuring, use_running_means
from oversmoothing.errors import InputError
from oversmoothing.lab.data.batches import mixed_seed
from oversmoothing.lab.data.graphs.graph import Graph
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes.blocks import in_blocks
from oversmoothing.lab.tasks.nodes.gradients import average
from oversmoothing.lab.tasks.nodes.loop import FullBatchLoop
from oversmoothing.lab.tasks.nodes.minibatch import MiniBatchAdam
from oversmoothing.lab.tasks.nodes.parts import rows

if TYPE_CHECKING:
    from torch_geometric.data import Data

HOST = torch.device("cpu")


class MiniBatchLoop(FullBatchLoop):
    """Trains the networks of all seeds, each on its own batches.

    Batches and dropout depend only on the seed, the epoch and the number of the batch. So a killed
    training continues bit-identically, and the result does not depend on the number of processes.

    Args:
        model: its ``nets`` are the networks of the seeds, on the device; ``x``, ``edge_index`` and
            ``edge_weight`` are the whole graph, on the host.
        graph: on the host.
        trainer: the recipe.
        recorder: takes logs and checkpoints; its seeds are those of the networks.
        layer_metrics: whether to measure smoothness after every layer at every evaluation.
    """

    trainer: MiniBatchAdam

    def __init__(
        self,
        model: nn.Module,
        graph: Graph,
        trainer: MiniBatchAdam,
        recorder: Recorder,
        layer_metrics: bool,
    ) -> None:
        self.device, self.seeds = next(model.parameters()).device, recorder.seeds
        momentum = {"exact": 0.0, "running": trainer.momentum, "batch": 1.0}[trainer.mean]
        self.means = [use_running_means(net, momentum) for net in model.nets]
        super().__init__(model, graph, trainer, recorder, layer_metrics)
        self.trains = torch.zeros(len(self.seeds), graph.num_nodes, dtype=torch.bool)
        for own, nodes in zip(self.trains, self.nodes["train"]):
            own[nodes] = True
        plans = self._plans()
        if min(map(len, plans)) < distributed.world():
            raise InputError(
                f"trainer: {min(map(len, plans))} batches an epoch do not suffice for "
                f"{distributed.world()} processes; make the batches smaller"
            )
        self.sample = trainer.sampler(graph)

    def step(self) -> Tensor:
        """Trains for an epoch; returns the mean loss (S,) of every seed in it."""
        if self.trainer.mean == "exact":
            self._measure_means()
        self.model.train()
        plans, size = self._plans(), self.trainer.accumulate
        starts = range(0, max(map(len, plans)), size)
        sums = torch.zeros(2, len(self.seeds), device=self.device)
        for start in starts:
            advance(self.model, self.epoch * len(starts) + start // size)
            sums += self._update([plan[start : start + size] for plan in plans], start)
        losses, counts = sums
        return losses / counts

    def _plans(self) -> list[list[Tensor]]:
        """Draws the batches of this epoch for each seed."""
        plans = []
        for seed, train in zip(self.seeds, self.nodes["train"]):
            generator = torch.Generator().manual_seed(mixed_seed("batches", seed, self.epoch))
            plans.append(self.trainer.batches(self.graph, train, generator))
        return plans

    def _update(self, plans: list[list[Tensor]], start: int) -> Tensor:
        """Makes one optimization step.

        Args:
            plans: the batches of the step for each seed.
            start: number of the first batch in the epoch.

        Returns:
            The sum of the losses and the number of training nodes for each seed, (2, S).
        """
        self.optimizer.zero_grad()
        sums = torch.zeros(2, len(plans), device=self.device)
        for i, plan in enumerate(plans):
            for k in range(distributed.rank(), len(plan), distributed.world()):
                torch.manual_seed(mixed_seed("step", self.seeds[i], self.epoch, start + k))
                begin_part(self.model.nets[i], k)
                sums[:, i] += self._backward(i, self.sample(plan[k]))
        sums = average(self.model.nets, sums)
        self.optimizer.step()
        settle(self.model)
        return sums

    def _backward(self, i: int, batch: "Data") -> Tensor:
        """Accumulates the gradient of a batch's summed loss; returns loss and number of nodes."""
        nodes, first = batch.n_id, batch.get("batch_size")
        for mean in self.means[i]:
            mean.first = first
        weight = batch.get("edge_weight")
        edges = [None if t is None else t.to(self.device) for t in (batch.edge_index, weight)]
        logits = self.model.nets[i](rows(self.graph.x, nodes).to(self.device), *edges)[:first]
        own = self.trains[i][nodes[:first]].nonzero()[:, 0]
        y = self.graph.y[nodes[own]].to(self.device)
        loss = F.cross_entropy(logits[own.to(self.device)], y, reduction="sum")
        if len(own):
            loss.backward()
        return torch.stack([loss.detach(), loss.new_tensor(len(own))])

    def _measure_means(self) -> None:
        """Measures the mean over all nodes in every layer."""
        with self._on_host(), measuring([mean for means in self.means for mean in means]):
            self._predictions()

    def _predictions(self) -> Tensor:
        model = self.model
        whole = model.x, model.edge_index, model.edge_weight
        return torch.stack([net(*whole).argmax(dim=-1) for net in model.nets])

    def _accuracies(self) -> dict[str, list[float]]:
        with self._on_host():
            return distributed.from_first(super()._accuracies() if distributed.rank() == 0 else {})

    def _layers(self) -> list[dict[str, list[float]]]:
        with self._on_host():
            return super()._layers()

    @contextmanager
    def _on_host(self) -> Iterator[None]:
        """Context for passes over the whole graph, in evaluation and without gradient."""
        self.model.nets.to(HOST)
        self.model.eval()
        with torch.no_grad(), in_blocks(self.model):
            yield
        self.model.nets.to(self.device)
