"""Trains networks of several configurations and seeds on one graph as one stack.

Configurations can share a stack if they differ only in the rates of the recipe, its epochs, and
options declared as ``float | Tensor``, which a backbone or aggregator takes as a tensor with one
entry for each network. If every network has its own instance of an aggregator, because it has
parameters or draws random numbers, the options of this aggregator must be equal.
"""

import functools
import inspect
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, get_args

import torch
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from oversmoothing.aggregators.base import make
from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build, signature
from oversmoothing.lab.backbones.engine import Engine
from oversmoothing.lab.backbones.per_seed import PerSeed, stateless
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.execute import parts
from oversmoothing.lab.tasks.base import Parts, Task
from oversmoothing.lab.tasks.nodes import METRICS, Update, replayable
from oversmoothing.lab.training.replay import set_capturable

DIVERGED = -1.0  # score of a network whose loss was not finite; below every accuracy
BUILT = ("backbone", "aggregator", "then")
OF_NETWORK = ("lr", "weight_decay", "dense_weight_decay", "epochs")  # of the recipe


class Member(NamedTuple):
    """A network, identified by the number of its configuration and its seed."""

    trial: int
    seed: int


@dataclass(frozen=True)
class Work:
    """What all stacks of a search share.

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


def without_test(graph: Graph) -> Graph:
    """Removes the labels of all nodes that are neither training nor validation nodes."""
    seen = (graph.train | graph.val).view(-1, graph.num_nodes).any(dim=0)
    return replace(graph, y=graph.y.where(seen, -1), test=graph.test & False)


class Stack:
    """Networks of equal shape that are trained together; none influences another.

    A network leaves the stack when it reaches the epochs of its recipe, or when its loss is not
    finite.

    Args:
        work: configurations, graph and device.
        members: the networks.

    Attributes:
        history: for each network that was ever in the stack, the evaluations that exceed all
            earlier ones: epoch and validation accuracy in percent.
        seconds: spent on training, also before an interruption.
    """

    def __init__(self, work: Work, members: Sequence[Member]) -> None:
        self.work, self.epoch, self.seconds = work, 0, 0.0
        self.history: dict[Member, list[list[float]]] = {member: [] for member in members}
        self._build(members)

    def _build(self, members: Sequence[Member]) -> None:
        self.members, self.trainers = [*members], []
        if not members:
            return
        work, seeds = self.work, [member.seed for member in members]
        configs = [work.configs[member.trial] for member in members]
        self.trainers = [build(config.trainer) for config in configs]
        together = stacked(configs, work.graph, work.device)
        self.model = work.task.network(together, seeds, work.device)
        self.optimizer = StackedAdam(self.model, self.trainers)
        self.nodes = work.graph.masks(seeds)
        replays = replayable(self.model, work.graph, self.trainers[0])
        for optimizer in self.optimizer.each:
            set_capturable(optimizer, replays)
        self.update = Update(self.model, self.optimizer, work.graph, self.nodes["train"], replays)

    def train(self, until: int, tick: Callable[[], None] = lambda: None) -> None:
        """Trains up to an epoch.

        Args:
            until: number of the epoch.
            tick: called after every epoch.
        """
        while self.members and self.epoch < until:
            began = time.monotonic()
            losses = self.update(self.epoch)
            self.epoch += 1
            often = self.epoch % self.trainers[0].eval_every == 0
            if often or any(self.epoch == trainer.epochs for trainer in self.trainers):
                self._evaluate(losses)
            self.seconds += time.monotonic() - began
            tick()

    @torch.no_grad()
    def _evaluate(self, losses: Tensor) -> None:
        self.model.eval()
        logits, graph = self.model(), self.work.graph
        of = METRICS[graph.metric]
        means = torch.stack(
            [of(logits[i, own], graph.y[own]) for i, own in enumerate(self.nodes["val"])]
        )
        finite, left = losses.isfinite().tolist(), []
        for i, (member, value) in enumerate(zip(self.members, (100 * means).tolist())):
            last = self.epoch == self.trainers[i].epochs
            evaluates = last or self.epoch % self.trainers[i].eval_every == 0
            if not finite[i]:
                self.history[member].append([self.epoch, DIVERGED])
            elif evaluates and value > self.score(member)[1]:
                self.history[member].append([self.epoch, value])
            if finite[i] and not last:
                left.append(member)
        self.keep(left)

    def score(self, member: Member, until: float = float("inf")) -> list[float]:
        """Returns the epoch of the highest validation accuracy up to an epoch, and the accuracy."""
        return next((own for own in reversed(self.history[member]) if own[0] <= until), [0, 0.0])

    def keep(self, members: Collection[Member]) -> None:
        """Keeps these networks and removes all others."""
        kept = [i for i, member in enumerate(self.members) if member in members]
        if len(kept) == len(self.members):
            return
        before, each = self.model, self.optimizer.each
        self._build([self.members[i] for i in kept])
        if kept:
            self.model.load_state_dict(_chosen(before, kept))
            self.optimizer.load([each[i].state_dict() for i in kept])

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for ``load_state_dict``, in plain types and tensors."""
        history = [[*member, own] for member, own in self.history.items()]
        state = {"members": [[*m] for m in self.members], "epoch": self.epoch, "history": history}
        state["seconds"] = self.seconds
        if self.members:
            adams = [adam.state_dict() for adam in self.optimizer.each]
            state |= {"model": self.model.state_dict(), "optimizers": adams}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._build([Member(*member) for member in state["members"]])
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        self.history = {Member(trial, seed): own for trial, seed, own in state["history"]}
        if self.members:
            self.model.load_state_dict(state["model"])
            self.optimizer.load(state["optimizers"])


class StackedAdam:
    """``torch.optim.Adam`` for each network of a stack, with its own rates, on its slices.

    Args:
        model: the networks. A parameter has one entry (S, …) for each, or belongs to one of them.
        trainers: the recipe of each network.

    Attributes:
        each: the optimizer of each network.
    """

    def __init__(self, model: nn.Module, trainers: Sequence[Any]) -> None:
        states = model.state_dict(keep_vars=True)
        owners = {id(states[name]): i for name, i in _owned(model).items()}
        self.zero_grad = model.zero_grad
        self.slices: list[tuple[nn.Parameter, int, nn.Parameter]] = []
        self.each = []
        for i, trainer in enumerate(trainers):
            groups = trainer.groups(model)
            for group in groups:
                own = [p for p in group["params"] if owners.get(id(p), i) == i]
                group["params"] = [p if id(p) in owners else self._slice(p, i) for p in own]
            self.each.append(torch.optim.Adam(groups, lr=trainer.lr, fused=True))

    def _slice(self, whole: nn.Parameter, i: int) -> nn.Parameter:
        """Returns the entry of a network, which shares its memory with the whole parameter."""
        own = nn.Parameter(whole.data[i])
        self.slices.append((whole, i, own))
        return own

    def step(self) -> None:
        """Makes one step with the gradients; parameters without a gradient do not change."""
        for whole, i, own in self.slices:
            own.grad = None if whole.grad is None else whole.grad[i]
        for optimizer in self.each:
            optimizer.step()

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        for optimizer, state in zip(self.each, states, strict=True):
            optimizer.load_state_dict(state)


def shape(config: DictConfig) -> str:
    """Returns a text that is equal for configurations that can share a stack."""
    plain = OmegaConf.to_container(config, resolve=True)
    nodes = {key: dict(plain[key]) for key in (*BUILT, "trainer", "data", "task")}
    for key in BUILT:
        options = _per_network(get_method(nodes[key]["_target_"])) & nodes[key].keys()
        if options and (key == "backbone" or _shared(config[key], config.backbone.hidden)):
            nodes[key] = {name: own for name, own in nodes[key].items() if name not in options}
    for option in OF_NETWORK:
        nodes["trainer"].pop(option, None)
    return json.dumps(nodes, sort_keys=True)


def _shared(node: DictConfig, dim: int) -> bool:
    """Whether all networks share one instance of an aggregator."""
    with torch.random.fork_rng(devices=[]):
        return stateless(make(build(node), dim))


@functools.cache
def _per_network(target: Callable) -> frozenset[str]:
    """Returns the options of a class that can be a tensor with one entry for each network."""
    _, hints = signature(target)
    return frozenset(key for key, hint in hints.items() if set(get_args(hint)) == {float, Tensor})


def stacked(configs: Sequence[DictConfig], data: Graph, device: torch.device) -> Parts:
    """Builds the parts of a stack of networks, one for each configuration.

    Args:
        configs: of equal shape, one for each network.
        data: the graph.
        device: where the networks are trained.
    """
    each = [parts(config, data) for config in configs]
    aggregators = [_together(own, device) for own in zip(*(own.aggregators for own in each))]
    backbone = _together([own.backbone for own in each], device)
    return replace(each[0], aggregators=aggregators, backbone=backbone)


def _together(factories: Sequence[partial], device: torch.device) -> partial:
    """Merges several factories to one with their stacked options."""
    first, dtype = factories[0], torch.get_default_dtype()
    tensors = {}
    for option in sorted(_per_network(first.func) & first.keywords.keys()):
        values = [float(factory.keywords[option]) for factory in factories]
        if len(set(values)) > 1:
            tensors[option] = torch.tensor(values, device=device, dtype=dtype).view(-1, 1, 1)
    return partial(first, **tensors)


def require_stackable(configs: Sequence[DictConfig]) -> None:
    """Raises InputError if a stack cannot train the networks of some configurations."""
    other = "; search with `python train.py -m hydra/sweeper=optuna …` instead"
    networks = {get_method(config.backbone["_target_"]) for config in configs}
    if not all(inspect.isclass(each) and issubclass(each, Engine) for each in networks):
        raise InputError(f"backbone: a stack has graph networks other than pyg{other}")
    trainers = [build(config.trainer) for config in configs]
    if any(trainer.on_host for trainer in trainers):
        raise InputError(f"trainer: a stack trains on the full batch, with trainer=adam{other}")
    if any(own.selection != "best-val" or own.patience is not None for own in trainers):
        raise InputError(
            "trainer: a search keeps the epoch with the highest validation accuracy; set "
            "trainer.selection=best-val and trainer.patience=null"
        )


def _owned(model: nn.Module) -> dict[str, int]:
    """Maps the names in a model's state that belong to one network to the network's number."""
    return {
        f"{path}.copies.{i}.{name}": i
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, PerSeed) and not module.stateless
        for i, copy in enumerate(module.copies)
        for name in copy.state_dict(keep_vars=True)
    }


def _chosen(model: nn.Module, keep: Sequence[int]) -> dict[str, Any]:
    """Selects the part of a model's state that belongs to some of its networks."""
    owners, places = _owned(model), {old: new for new, old in enumerate(keep)}
    shared = tuple(
        f"{path}."
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, PerSeed) and module.stateless
    )
    found = {}
    for name, value in model.state_dict().items():
        if name.startswith(shared) or value is None:
            found[name] = value
        elif name not in owners:
            found[name] = value[list(keep)] if torch.is_tensor(value) else [value[i] for i in keep]
        elif owners[name] in places:
            old, new = owners[name], places[owners[name]]
            found[name.replace(f".copies.{old}.", f".copies.{new}.", 1)] = value
    return found
