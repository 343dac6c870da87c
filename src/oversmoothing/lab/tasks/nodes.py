"""Semi-supervised node classification with all seeds of a cell trained together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import advance, settle, steady
from oversmoothing.checks import above, at_least, of, require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import Graph, to_csr
from oversmoothing.lab.data.loading import mixed_seed
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Job, Parts, Result, Task, require_arguments
from oversmoothing.lab.tasks.layers import OF_BLOCKS
from oversmoothing.lab.training.loop import check_weights, compiled
from oversmoothing.lab.training.replay import Replayed, set_capturable
from oversmoothing.metrics import graphs, smoothness


@dataclass(frozen=True)
class FullBatchAdam:
    """Adam on the full batch, as in ContraNorm's code for graph networks.

    Args:
        epochs: number of optimization steps.
        lr: learning rate.
        weight_decay: L2 penalty of Adam, for all parameters without ``dense_weight_decay``.
        selection: results of each seed are those of the ``last`` epoch, or of the epoch with the
            highest validation score (``best-val``; the earliest if several are equal). The score is
            the graph's ``metric``, accuracy or ROC AUC.
        eval_every: epochs between two evaluations; ``best-val`` chooses among these. The
            last epoch is always evaluated.
        patience: with ``best-val``, number of epochs without a higher validation score after which
            the result of a seed is final. Training ends when all seeds are final. None: train all
            epochs.
        dense_weight_decay: L2 penalty on the linear layers before and after the graph
            convolutions, as in GCNII's code; None: ``weight_decay``.
        compile: use torch.compile.
        cuda_graph: on a GPU, replay steps and evaluations from a CUDA graph. Networks that are not
            ``replayable``, aggregators that are not ``steady``, and compiled networks run without.

    Attributes:
        on_host: whether the graph stays in the host's memory, and parts of it move to the device.

    Raises:
        InputError: a value is out of range, or the patience ends before the second evaluation.
    """

    on_host: ClassVar[bool] = False
    epochs: int = 200
    lr: float = 0.005
    weight_decay: float = 5e-4
    selection: Literal["last", "best-val"] = "last"
    eval_every: int = 20
    patience: int | None = None
    dense_weight_decay: float | None = None
    compile: bool = False
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        rules = at_least(1, **of(self, "epochs", "eval_every")) | above(0, lr=self.lr)
        require("trainer", **rules, **at_least(0, **of(self, "weight_decay", "dense_weight_decay")))
        if self.patience is not None and not (self.patience > 0 and self.selection == "best-val"):
            raise InputError(
                "trainer.patience: expected 1 or more epochs, with trainer.selection=best-val, got "
                f"{self.patience} with {self.selection}"
            )
        if self.patience is not None and self.patience < self.eval_every:
            raise InputError(  # the first evaluation would be the last
                f"trainer.patience: expected trainer.eval_every={self.eval_every} epochs or more, "
                f"got {self.patience}; raise it, or lower trainer.eval_every"
            )

    def loop(self) -> type["FullBatchLoop"]:
        """Returns the class of the training loop."""
        return FullBatchLoop

    def fits(self, network: nn.Module) -> None:
        """Raises InputError unless the loop can train a network."""
        if self.dense_weight_decay is not None and not self.groups(network)[1]["params"]:
            raise InputError(
                "trainer.dense_weight_decay: this network has no linear layers before or after its "
                "convolutions; leave it out"
            )

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Groups parameters by weight decay; those of linear layers have ``dense`` in a name."""
        if self.dense_weight_decay is None:
            return [{"params": [*model.parameters()], "weight_decay": self.weight_decay}]
        named = dict(model.named_parameters())
        dense = [p for name, p in named.items() if "dense" in name.split(".")]
        others = [p for name, p in named.items() if "dense" not in name.split(".")]
        return [
            {"params": others, "weight_decay": self.weight_decay},
            {"params": dense, "weight_decay": self.dense_weight_decay},
        ]


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
    diagnoses: ClassVar[bool] = True
    toy: ClassVar[Any] = _two_nodes()
    kinds: ClassVar[dict[str, tuple[Any, str]]] = {
        "data": (
            Graph,
            "task nodes needs a graph; choose data=cora, citeseer, chameleon_filtered, "
            "squirrel_filtered, actor, minesweeper, sbm, pyg or ogb",
        ),
        "trainer": (FullBatchAdam, "choose trainer=adam or minibatch_cluster"),
    }
    layer_metrics: bool = False

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> nn.Module:
        """Builds the networks, one per seed."""
        self.accept(parts)
        wanted = "choose backbone=gcn, gcnii, jknet, gprgnn, dagnn, graphcon, g2 or pyg"
        require_arguments(parts.backbone, ("x", "edges"), wanted)
        graph = _held(parts, device)
        weights = {} if graph.weights is None else {"weights": graph.weights}
        model = parts.backbone(
            aggregators=parts.aggregators,
            x=graph.x,
            edges=graph.edges,
            num_classes=graph.num_classes,
            seeds=seeds,
            **weights,
        )
        return model.to(device)

    def check(self, network: nn.Module, parts: Parts) -> None:
        if parts.trainer is not None:
            parts.trainer.fits(network)

    def chance(self, parts: Parts, seed: int) -> dict[str, float]:
        if parts.data.metric == "roc_auc":
            return {"test_roc_auc": 50.0}
        [test] = parts.data.masks([seed])["test"]
        return {"test_accuracy": 100 * parts.data.y[test].bincount().max().item() / len(test)}

    def run(self, network: nn.Module, job: Job) -> dict[int, Result]:
        """Trains all networks at once.

        Returns:
            Per seed: ``test_accuracy``, ``val_accuracy``, ``train_accuracy`` in percent, likewise
            ``test_roc_auc``, … if the graph is scored by it, the ``train_loss``, the ``epoch`` they
            are from, and with ``layer_metrics`` also ``layers`` (metric -> value per layer).
        """
        graph, trainer = _held(job.parts, job.device), job.parts.trainer
        loop = trainer.loop()(network, graph, trainer, job.recorder, self.layer_metrics)
        loop.fit()
        return dict(zip(job.seeds, loop.chosen))


MASKS = ("test", "val", "train")


class FullBatchLoop:
    """Trains a batch of networks, one per seed, on one graph.

    Args:
        model: the networks; called without arguments, it returns logits (S, N, K).
        graph: with its masks.
        trainer: the recipe.
        recorder: takes logs and checkpoints; its seeds are those of the networks, and choose the
            masks if the graph has several splits.
        layer_metrics: whether to measure smoothness after every layer at every evaluation.
    """

    def __init__(
        self,
        model: nn.Module,
        graph: Graph,
        trainer: FullBatchAdam,
        recorder: Recorder,
        layer_metrics: bool,
    ) -> None:
        self.model, self.graph, self.trainer, self.recorder = model, graph, trainer, recorder
        self.layer_metrics = layer_metrics
        self.nodes = graph.masks(recorder.seeds)
        self.optimizer = torch.optim.Adam(trainer.groups(model), lr=trainer.lr, fused=True)
        self.replays = replayable(model, graph, trainer)
        set_capturable(self.optimizer, self.replays)
        self.update = Update(model, self.optimizer, graph, self.nodes["train"], self.replays)
        self._right = Replayed(self._shares) if self.replays else self._shares
        self.epoch = 0
        self.chosen: list[dict[str, Any]] = []  # per seed, the selected evaluation

    def fit(self) -> None:
        self._resume()
        if self.trainer.compile:
            self._accuracies()  # runs initialisation that cannot be compiled, such as sorting
        progress = self.recorder.progress(self.trainer.epochs, "epoch")
        with compiled(self.model, self.trainer.compile), progress as bar:
            bar.update(self.epoch)
            if self.epoch == 0:
                self._diagnose()
            while self.epoch < self.trainer.epochs and not self._stopped():
                losses = self.step()
                self.epoch += 1
                last = self.epoch == self.trainer.epochs
                if last or self.epoch % self.trainer.eval_every == 0:
                    self._record(losses)
                self._diagnose(last or self._stopped())
                if self.recorder.checkpoint_due():
                    self._save()
                bar.update(1)

    def _stopped(self) -> bool:
        """Whether the patience is over for all seeds."""
        return bool(self.chosen) and all(map(self._exhausted, self.chosen))

    def _exhausted(self, chosen: dict[str, Any]) -> bool:
        """Whether a seed had no better evaluation for ``patience`` epochs."""
        patience = self.trainer.patience
        return patience is not None and self.epoch - chosen["epoch"] >= patience

    def _diagnose(self, last: bool = False) -> None:
        """Logs the smoothness after every layer, if it is due."""
        if self.recorder.diagnosis_due(self.epoch, last):
            self.recorder.log(epoch=self.epoch, layers=self._layers())

    @torch.no_grad()
    def _layers(self) -> list[dict[str, list[float]]]:
        """Measures smoothness after every layer, per seed."""
        self.model.eval()
        hidden: list[Tensor] = []
        self.model(hidden)
        edges = self.graph.edges
        measures = {measure.__name__: measure for measure in OF_BLOCKS}
        for measure in (graphs.dirichlet_energy, graphs.mad):
            measures[measure.__name__] = partial(measure, edges=edges)
        tokens = (smoothness.Tokens(h) for h in hidden)
        by_layer = [{name: m(t).tolist() for name, m in measures.items()} for t in tokens]
        seeds = range(len(self.recorder.seeds))
        return [{m: [layer[m][s] for layer in by_layer] for m in measures} for s in seeds]

    def _logits(self) -> Tensor:
        """Shapes: -> (S, N, K)."""
        return self.model()

    @torch.no_grad()
    def _shares(self) -> Tensor:
        """Returns the metrics in each mask of each seed, (metrics · 3, S), from 0 to 1."""
        logits, y = self._logits(), self.graph.y
        found = [
            METRICS[metric](logits[i, own], y[own])
            for metric in metrics_of(self.graph)
            for name in MASKS
            for i, own in enumerate(self.nodes[name])
        ]
        return torch.stack(found).view(-1, len(self.nodes["test"]))

    def _accuracies(self) -> dict[str, list[float]]:
        """Returns accuracies, and ROC AUC where it counts, in percent, per mask and seed."""
        self.model.eval()
        keys = [f"{name}_{metric}" for metric in metrics_of(self.graph) for name in MASKS]
        return dict(zip(keys, (100 * self._right()).tolist()))

    def step(self) -> Tensor:
        """Makes one optimization step; returns the loss (S,) of every seed before it."""
        return self.update(self.epoch)

    def _record(self, losses: Tensor) -> None:
        measured = {**self._accuracies(), "train_loss": losses.tolist()}
        if self.layer_metrics:
            measured["layers"] = self._layers()
        self.recorder.log(epoch=self.epoch, **measured)
        if not losses.isfinite().all():
            raise InputError(
                f"training loss is not finite at epoch {self.epoch}: {losses.tolist()}; "
                "lower trainer.lr or choose other aggregator settings"
            )
        if self.epoch == self.trainer.epochs:
            check_weights(self.model, f"epoch {self.epoch}")
        seeds = range(len(losses))
        now = [{**{k: v[s] for k, v in measured.items()}, "epoch": self.epoch} for s in seeds]
        if self.trainer.selection == "last" or not self.chosen:
            self.chosen = now
        else:
            self.chosen = [self._select(*pair) for pair in zip(self.chosen, now)]

    def _select(self, chosen: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
        """Returns the newer evaluation of a seed if it is better and within the patience."""
        key = f"val_{self.graph.metric}"
        better = now[key] > chosen[key]
        late = self.trainer.patience and now["epoch"] - chosen["epoch"] > self.trainer.patience
        return now if better and not late else chosen

    def _save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"epoch": self.epoch, "chosen": self.chosen}
        state["device"] = next(self.model.parameters()).device.type
        self.recorder.save_checkpoint(state)

    def _resume(self) -> None:
        state, here = self.recorder.load_checkpoint(), next(self.model.parameters()).device.type
        if state is None:
            return
        with self.recorder.restoring():
            made_on = state["device"]
        if made_on != here:  # the generators of dropout differ
            self.recorder.start_over(f"it was made on {made_on}, not on {here}")
            return
        with self.recorder.restoring():
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.chosen = int(state["epoch"]), state["chosen"]


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Returns the share of nodes with the right class. Shapes: logits (N, K), y (N,) -> ()."""
    return (logits.argmax(dim=-1) == y).double().mean()


def roc_auc(logits: Tensor, y: Tensor) -> Tensor:
    """Returns the area under the ROC curve of two classes.

    It is the probability that a node of class 1 has a higher score than one of class 0, and half
    that of a tie (the statistic of Mann and Whitney). NaN if a score is. Shapes: logits (N, 2),
    y (N,) -> ().
    """
    scores, positive = logits[:, 1] - logits[:, 0], y == 1
    ordered = scores.sort().values
    twice = sum(torch.searchsorted(ordered, scores, right=side) for side in (False, True)) + 1
    n, N = positive.sum(), len(scores)
    above = (twice * positive).sum() - n * (n + 1)  # twice the ranks from 1, without the least sum
    return (above.double() / (2 * n * (N - n))).masked_fill(scores.isnan().any(), torch.nan)


METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"accuracy": accuracy, "roc_auc": roc_auc}


def metrics_of(graph: Graph) -> list[str]:
    """Returns accuracy, and the metric of the graph if it is another one."""
    return [*dict.fromkeys(("accuracy", graph.metric))]


class Update:
    """One optimization step of several networks.

    Args:
        model: S networks.
        optimizer: of their parameters.
        graph: with the classes of the nodes.
        train: training nodes of each network.
        replays: whether steps are replayed from a CUDA graph.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        graph: Graph,
        train: Sequence[Tensor],
        replays: bool = False,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.y = [graph.y[own] for own in train]
        self.sizes = [len(own) for own in train]
        self.rows = torch.cat([own + i * graph.num_nodes for i, own in enumerate(train)])
        self.replayed = Replayed(self._update, model.seeds.generators) if replays else None
        self.steady = False  # whether all further steps are replayed

    def __call__(self, epoch: int) -> Tensor:
        """Makes a step; returns the loss (S,) of every network before it.

        Args:
            epoch: the number of the step, from 0.
        """
        if not self.steady:
            torch.manual_seed(mixed_seed("step", epoch))  # for aggregators with dropout
            advance(self.model, epoch)
            self.steady = self.replayed is not None and steady(self.model)
        if not self.model.training:  # to visit all modules takes longer than a replay
            self.model.train()
        return self.replayed() if self.steady else self._update()

    def _update(self) -> Tensor:
        logits = self.model().flatten(0, 1).index_select(0, self.rows)  # of all networks at once
        each = zip(logits.log_softmax(dim=-1).split(self.sizes), self.y)
        losses = torch.stack([F.nll_loss(own, y) for own, y in each])
        self.optimizer.zero_grad()
        losses.sum().backward()  # networks share no parameter, so each gets its own gradient
        self.optimizer.step()
        settle(self.model)
        return losses.detach()


def replayable(model: nn.Module, graph: Graph, trainer: FullBatchAdam) -> bool:
    """Whether the training of a network is to be replayed from a CUDA graph, and can be."""
    wanted = trainer.cuda_graph and not trainer.compile
    return wanted and graph.y.device.type == "cuda" and getattr(model, "replayable", False)


def _held(parts: Parts, device: torch.device) -> Graph:
    """Returns the graph on the device that the recipe needs."""
    on_host = parts.trainer is not None and parts.trainer.on_host
    return parts.data.to("cpu" if on_host else device)
