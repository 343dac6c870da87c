"""Training on parts of a graph: recipes for torch-geometric's loaders, and their loop."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.aggregators.base import advance, settle
from oversmoothing.aggregators.contranorm import begin_part
from oversmoothing.checks import Rule, at_least, of, require
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.running_mean import measuring, use_running_means
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.data.loading import mixed_seed
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchAdam, FullBatchLoop

if TYPE_CHECKING:
    from torch_geometric.data import Data

Sample = Callable[[Tensor], "Data"]


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
    cuda_graph: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        momentum = (self.momentum, 0 < self.momentum <= 1, "above 0, at most 1")
        require("trainer", momentum=momentum, **at_least(1, accumulate=self.accumulate))
        if self.accumulate % (world := distributed.world()):
            raise InputError(
                f"trainer.accumulate: {self.accumulate} batches a step do not divide among {world} "
                f"processes; set it to {world} or a multiple"
            )

    def loop(self) -> type["MiniBatchLoop"]:
        return MiniBatchLoop

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
            train: indices of the training nodes.

        Raises:
            InputError: the graph is too small for such batches.
        """
        raise NotImplementedError

    def sampler(self, graph: Graph) -> Sample:
        """Returns the function that converts an entry of ``batches`` to a batch.

        A batch has the attributes of torch-geometric's loaders: ``edge_index``, ``n_id`` (the
        nodes), and ``edge_weight`` if the graph has weights.
        """
        raise NotImplementedError


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
        N = graph.num_nodes
        require("trainer", num_parts=_at_most(self.num_parts, N, f"nodes of data {graph.name}"))
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
        most = _at_most(self.parts_per_batch, self.num_parts, "trainer.num_parts")
        require("trainer", **at_least(1, **of(self, "num_parts", "parts_per_batch")))
        require("trainer", parts_per_batch=most)

    def batches(self, graph: Graph, train: Tensor, generator: torch.Generator) -> list[Tensor]:
        N = graph.num_nodes
        require("trainer", num_parts=_at_most(self.num_parts, N, f"nodes of data {graph.name}"))
        return shuffled(torch.arange(self.num_parts), self.parts_per_batch, generator)

    def sampler(self, graph: Graph) -> Sample:
        from torch_geometric.loader import ClusterData, ClusterLoader

        class Parts(ClusterData):
            """ClusterData with pymetis; torch-geometric itself needs pyg-lib or torch-sparse."""

            def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
                return metis(edge_index, num_nodes, self.num_parts)

        parts = Parts(to_data(graph), self.num_parts, log=False)
        return ClusterLoader(parts).collate_fn


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
        nodes, weight = batch.n_id, batch.get("edge_weight")
        edges = [None if t is None else t.to(self.device) for t in (batch.edge_index, weight)]
        logits = self.model.nets[i](rows(self.graph.x, nodes).to(self.device), *edges)
        own = self.trains[i][nodes].nonzero()[:, 0]
        y = self.graph.y[nodes[own]].to(self.device)
        loss = F.cross_entropy(logits[own.to(self.device)], y, reduction="sum")
        if len(own):
            loss.backward()
        return torch.stack([loss.detach(), loss.new_tensor(len(own))])

    def _measure_means(self) -> None:
        """Measures the mean over all nodes in every layer."""
        with self._on_host(), measuring([mean for means in self.means for mean in means]):
            self._logits()

    def _logits(self) -> Tensor:
        model = self.model
        whole = model.x, model.edge_index, model.edge_weight
        return torch.stack([net(*whole) for net in model.nets])

    def _accuracies(self) -> dict[str, list[float]]:
        with self._on_host():
            return distributed.from_first(super()._accuracies() if distributed.rank() == 0 else {})

    def _layers(self) -> list[dict[str, list[float]]]:
        with self._on_host():
            return super()._layers()

    @contextmanager
    def _on_host(self) -> Iterator[None]:
        """Context for passes over the whole graph, in evaluation and without gradient."""
        self.model.nets.to("cpu")
        self.model.eval()
        with torch.no_grad():
            yield
        self.model.nets.to(self.device)


def average(nets: Iterable[nn.Module], sums: Tensor) -> Tensor:
    """Converts gradients of summed losses to gradients of the mean loss over all processes.

    A network without training nodes in these batches gets no gradient, so Adam does not change it.

    Args:
        nets: S networks.
        sums: the sum of the losses and the number of training nodes of each network, (2, S).

    Returns:
        ``sums``, summed over all processes.
    """
    held = [[p for p in net.parameters() if p.requires_grad] for net in nets]
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


def shuffled(indices: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    """Divides indices at random into batches of ``size``; the last one may be smaller."""
    order = torch.randperm(len(indices), generator=generator)
    return [part.sort().values for part in indices[order].split(size)]


def to_data(graph: Graph) -> "Data":
    """Converts the edges of a graph to torch-geometric's ``Data``, with indices of the nodes."""
    from torch_geometric.data import Data

    N = graph.num_nodes
    weights: dict[str, Any] = {} if graph.weights is None else {"edge_weight": graph.weights}
    return Data(edge_index=graph.edges.flip(0), n_id=torch.arange(N), num_nodes=N, **weights)


def rows(x: Tensor, nodes: Tensor) -> Tensor:
    """Returns rows of features, dense. Shapes: x, dense or CSR, (N, F), nodes (n,) -> (n, F)."""
    if x.layout == torch.strided:
        return x[nodes]
    starts, counts = x.crow_indices()[nodes].long(), x.crow_indices().diff()[nodes].long()
    row = torch.repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    entry = torch.arange(len(row), device=row.device) + (starts - before)[row]
    dense = x.values().new_zeros(len(nodes), x.shape[1])
    dense[row, x.col_indices()[entry].long()] = x.values()[entry]
    return dense


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


def _at_most(value: int, most: int, what: str) -> Rule:
    return value, value <= most, f"at most the {most} {what}"
