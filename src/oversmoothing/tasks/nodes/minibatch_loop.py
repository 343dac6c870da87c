"""The training loop of node classification on parts of a graph, by one process or several."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.aggregators.base import advance, settle
from oversmoothing.aggregators.running_mean import measuring, use_running_means
from oversmoothing.data.batches import mixed_seed
from oversmoothing.data.graphs.graph import Graph
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.nodes.blocks import in_blocks
from oversmoothing.tasks.nodes.loop import FullBatchLoop

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from oversmoothing.tasks.nodes.minibatch import MiniBatchAdam

HOST = torch.device("cpu")


class MiniBatchLoop(FullBatchLoop):
    """Trains the networks of all seeds, each on batches of its own.

    Batches and dropout depend on seed, epoch and the number of the batch only. So a killed training
    continues bit-equally, and several processes compute what one would.

    Args:
        model: has a network for each seed in ``nets``, on the device, and the whole graph in ``x``,
            ``edge_index`` and ``edge_weight``, on the host.
        graph: on the host.
        seeds: of the networks.
        trainer: the recipe.
        recorder: takes logs and checkpoints.
        layer_metrics: whether to measure smoothness after every layer at every evaluation.
    """

    trainer: "MiniBatchAdam"

    def __init__(
        self,
        model: nn.Module,
        graph: Graph,
        seeds: list[int],
        trainer: "MiniBatchAdam",
        recorder: Recorder,
        layer_metrics: bool,
    ) -> None:
        self.device, self.seeds = next(model.parameters()).device, seeds
        momentum = {"exact": 0.0, "running": trainer.momentum, "batch": 1.0}[trainer.mean]
        self.means = [use_running_means(net, momentum) for net in model.nets]
        super().__init__(model, graph, seeds, trainer, recorder, layer_metrics)
        self.training = torch.zeros(len(seeds), graph.num_nodes, dtype=torch.bool)
        for own, nodes in zip(self.training, self.nodes["train"]):
            own[nodes] = True
        plans = self._plans()
        if min(map(len, plans)) < distributed.world():
            raise InputError(
                f"trainer: {min(map(len, plans))} batches an epoch do not suffice for "
                f"{distributed.world()} processes; make the batches smaller"
            )
        self.sample = trainer.sampler(graph)

    def _step(self) -> Tensor:
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
        """Draws the batches of this epoch, for each seed."""
        plans = []
        for seed, train in zip(self.seeds, self.nodes["train"]):
            generator = torch.Generator().manual_seed(mixed_seed("batches", seed, self.epoch))
            plans.append(self.trainer.batches(self.graph, train, generator))
        return plans

    def _update(self, plans: list[list[Tensor]], start: int) -> Tensor:
        """Makes one optimization step.

        Args:
            plans: for each seed the batches of the step.
            start: number of the first one in the epoch.

        Returns:
            For each seed the sum of the losses and the number of the training nodes, (2, S).
        """
        self.optimizer.zero_grad()
        sums = torch.zeros(2, len(plans), device=self.device)
        for i, plan in enumerate(plans):
            for k in range(distributed.rank(), len(plan), distributed.world()):
                torch.manual_seed(mixed_seed("step", self.seeds[i], self.epoch, start + k))
                sums[:, i] += self._backward(i, self.sample(plan[k]))
        sums = self._averaged(sums)
        self.optimizer.step()
        settle(self.model)
        return sums

    def _backward(self, i: int, batch: "Data") -> Tensor:
        """Adds a batch's gradient of the summed loss; returns that loss and the number of nodes."""
        nodes, first = batch.n_id, batch.get("batch_size")
        for mean in self.means[i]:
            mean.first = first
        weight = batch.get("edge_weight")
        edges = [None if t is None else t.to(self.device) for t in (batch.edge_index, weight)]
        logits = self.model.nets[i](rows(self.graph.x, nodes).to(self.device), *edges)[:first]
        own, y = self.training[i][nodes[:first]], self.graph.y[nodes[:first]]
        loss = F.cross_entropy(logits[own.to(self.device)], y[own].to(self.device), reduction="sum")
        if own.any():
            loss.backward()
        return torch.stack([loss.detach(), own.sum().to(loss)])

    def _averaged(self, sums: Tensor) -> Tensor:
        """Turns gradients of sums into gradients of means over the step, of all processes.

        A network without training node in the step gets no gradient, so Adam leaves it alone.
        """
        held = [[p for p in net.parameters() if p.requires_grad] for net in self.model.nets]
        every = [p for of_net in held for p in of_net]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in every]
        flat = torch.cat([sums.flatten(), *(grad.flatten() for grad in grads)])
        [flat] = distributed.sum_over_processes([flat])
        sums, *grads = flat.split([sums.numel(), *(p.numel() for p in every)])
        sums = sums.view(2, -1)
        counts = [count for count, of_net in zip(sums[1].tolist(), held) for _ in of_net]
        for p, grad, count in zip(every, grads, counts):
            p.grad = (grad / count).view_as(p) if count else None
        return sums

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


def rows(x: Tensor, nodes: Tensor) -> Tensor:
    """Rows of features as a dense tensor. Shapes: x, dense or CSR, (N, F), nodes (n,) -> (n, F)."""
    if x.layout == torch.strided:
        return x[nodes]
    starts, counts = x.crow_indices()[nodes].long(), x.crow_indices().diff()[nodes].long()
    row = torch.repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    entry = torch.arange(len(row), device=row.device) + (starts - before)[row]
    dense = x.values().new_zeros(len(nodes), x.shape[1])
    dense[row, x.col_indices()[entry].long()] = x.values()[entry]
    return dense
