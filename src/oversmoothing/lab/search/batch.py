"""Trains networks of several configurations and seeds together on one graph."""

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor

from oversmoothing.aggregators.base import advance, settle
from oversmoothing.lab.config.instantiate import build
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.data.loading import mixed_seed
from oversmoothing.lab.search.networks import chosen, optimizer, require_searchable, stacked
from oversmoothing.lab.tasks.base import Task
from oversmoothing.lab.tasks.nodes.loop import keep_freed_memory

DIVERGED = -1.0  # score of a network whose loss was not finite; below every accuracy
_GENERATOR = Lock()  # of torch's global generator, which draws networks and aggregators' dropout


class Member(NamedTuple):
    """A network, identified by the number of its configuration and its seed."""

    trial: int
    seed: int


@dataclass(frozen=True)
class Work:
    """The data that all batches of a search share.

    Args:
        configs: all configurations, by number.
        task: builds networks.
        graph: see ``without_test``.
        device: of the training.
    """

    configs: Sequence[DictConfig]
    task: Task
    graph: Graph
    device: torch.device


class Batch:
    """A batch of networks of equal shape.

    A network is removed from the batch when it reaches the epochs of its recipe or its loss is not
    finite.

    Args:
        work: configurations, graph and device.
        members: the networks.

    Attributes:
        scores: for each network that was ever in the batch, the highest validation accuracy in
            percent, and its epoch.

    Raises:
        InputError: see ``require_searchable``.
    """

    def __init__(self, work: Work, members: Sequence[Member]) -> None:
        self.work, self.epoch, self.lock = work, 0, Lock()
        self.scores = {member: [0.0, 0] for member in members}
        self._build(members)
        if work.device.type == "cpu":
            keep_freed_memory()

    def _build(self, members: Sequence[Member]) -> None:
        self.members, self.trainers = [*members], []
        if not members:
            return
        work, seeds = self.work, [member.seed for member in members]
        configs = [work.configs[member.trial] for member in members]
        with _GENERATOR:
            parts = stacked(configs, work.graph, work.device)
            self.model = work.task.network(parts, seeds, work.device)
        self.trainers = [build(config.trainer) for config in configs]
        require_searchable(self.model, self.trainers)
        self.random = any(getattr(module, "random", False) for module in self.model.modules())
        self.optimizer = optimizer(self.model, self.trainers)
        self.nodes = work.graph.masks(seeds)

    def train(self, until: int, tick: Callable[[], None] = lambda: None) -> None:
        """Trains up to an epoch.

        Args:
            until: number of the epoch.
            tick: called after every epoch.
        """
        while self.members and self.epoch < until:
            with self.lock:
                losses = self._step()
                self.epoch += 1
                if self._evaluates():
                    self._evaluate(losses)
            tick()

    def steps(self, until: int) -> int:
        """Returns the number of steps of all networks up to an epoch."""
        last = (min(until, trainer.epochs) for trainer in self.trainers)
        return sum(max(0, epoch - self.epoch) for epoch in last)

    def keep(self, members: Collection[Member]) -> None:
        """Keeps these networks and removes all others."""
        kept = [i for i, member in enumerate(self.members) if member in members]
        if len(kept) == len(self.members):
            return
        before, adam = self.model, self.optimizer.state_dict()
        state = chosen(before, before.state_dict(), kept)
        moments = {key: chosen(before, adam[key], kept) for key in ("first", "second")}
        self._build([self.members[i] for i in kept])
        if kept:
            self.model.load_state_dict(state)
            self.optimizer.load_state_dict({**moments, "steps": adam["steps"]})

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last whole epoch for ``load``, in plain types and tensors."""
        with self.lock:
            scores = [[*member, *score] for member, score in self.scores.items()]
            held = {"members": [[*m] for m in self.members], "epoch": self.epoch, "scores": scores}
            if self.members:
                held |= {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            return copy.deepcopy(held)  # the next epoch changes the tensors

    @classmethod
    def load(cls, work: Work, state: dict[str, Any]) -> "Batch":
        """Restores a batch from its state."""
        batch = cls(work, [Member(*member) for member in state["members"]])
        batch.epoch = state["epoch"]
        batch.scores = {Member(t, s): [value, epoch] for t, s, value, epoch in state["scores"]}
        if batch.members:
            batch.model.load_state_dict(state["model"])
            batch.optimizer.load_state_dict(state["optimizer"])
        return batch

    def _step(self) -> Tensor:
        """Makes an optimization step; returns the loss (S,) of every network before it."""
        if not self.random:
            return self._optimize()
        with _GENERATOR:
            torch.manual_seed(mixed_seed("step", self.epoch))
            return self._optimize()

    def _optimize(self) -> Tensor:
        advance(self.model, self.epoch)
        self.model.train()
        y = self.work.graph.y
        each = zip(self.model(), self.nodes["train"])
        losses = torch.stack([F.cross_entropy(out[own], y[own]) for out, own in each])
        self.optimizer.zero_grad()
        losses.sum().backward()  # networks share no parameter, so each gets its own gradient
        self.optimizer.step()
        settle(self.model)
        return losses.detach()

    def _evaluates(self) -> bool:
        often = self.epoch % self.trainers[0].eval_every == 0
        return often or any(self.epoch == trainer.epochs for trainer in self.trainers)

    @torch.no_grad()
    def _evaluate(self, losses: Tensor) -> None:
        self.model.eval()
        right = (self.model().argmax(dim=-1) == self.work.graph.y).double()
        means = torch.stack([right[i, own].mean() for i, own in enumerate(self.nodes["val"])])
        finite, left = losses.isfinite().tolist(), set()
        for i, (member, value) in enumerate(zip(self.members, (100 * means).tolist())):
            evaluates = self.epoch % self.trainers[i].eval_every == 0
            last = self.epoch == self.trainers[i].epochs
            if not finite[i]:
                self.scores[member] = [DIVERGED, self.epoch]
            elif (evaluates or last) and value > self.scores[member][0]:
                self.scores[member] = [value, self.epoch]
            if finite[i] and not last:
                left.add(member)
        self.keep(left)


def without_test(graph: Graph) -> Graph:
    """Removes the labels of all nodes that are neither training nor validation nodes."""
    seen = (graph.train | graph.val).view(-1, graph.num_nodes).any(dim=0)
    return replace(graph, y=graph.y.where(seen, -1), test=graph.test & False)
