"""The training loop of node classification: full batch, all seeds at once, resumable."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import advance, settle
from oversmoothing.errors import InputError
from oversmoothing.lab.data.batches import mixed_seed
from oversmoothing.lab.data.graphs.graph import Graph
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes.allocator import keep_freed_memory
from oversmoothing.lab.tasks.nodes.layers import of_layers
from oversmoothing.lab.tasks.nodes.recipe import FullBatchAdam
from oversmoothing.lab.training.compiled import compiled


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
        self.epoch = 0
        self.chosen: list[dict[str, Any]] = []  # per seed, the selected evaluation

        if graph.y.device.type == "cpu":
            keep_freed_memory()

    def fit(self) -> None:
        self._resume()
        if self.trainer.compile:
            self._accuracies()  # runs initialisation that cannot be compiled, such as sorting
        progress = self.recorder.progress(self.trainer.epochs, self.recorder.folder.name)
        with compiled(self.model, self.trainer.compile), progress as bar:
            bar.update(self.epoch)
            while self.epoch < self.trainer.epochs and not self._stopped():
                losses = self.step()
                self.epoch += 1
                if self._evaluates():
                    self._record(losses)
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

    @torch.no_grad()
    def _layers(self) -> list[dict[str, list[float]]]:
        """Measures smoothness after every layer, per seed."""
        self.model.eval()
        hidden: list[Tensor] = []
        self.model(hidden)
        return of_layers(hidden, self.graph.edges)

    def _predictions(self) -> Tensor:
        """Returns the class of every node, (S, N)."""
        return self.model().argmax(dim=-1)

    @torch.no_grad()
    def _accuracies(self) -> dict[str, list[float]]:
        """Returns accuracies in percent, per mask and seed."""
        self.model.eval()
        right = (self._predictions() == self.graph.y).double()
        return {
            f"{name}_accuracy": [
                100 * right[i, own].mean().item() for i, own in enumerate(self.nodes[name])
            ]
            for name in ("test", "val", "train")
        }

    def step(self) -> Tensor:
        """Makes one optimization step; returns the loss (S,) of every seed before it."""
        return step(self.model, self.optimizer, self.graph, self.nodes["train"], self.epoch)

    def _evaluates(self) -> bool:
        last = self.epoch == self.trainer.epochs
        return last or self.epoch % self.trainer.eval_every == 0

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
        seeds = range(len(losses))
        now = [{**{k: v[s] for k, v in measured.items()}, "epoch": self.epoch} for s in seeds]
        if self.trainer.selection == "last" or not self.chosen:
            self.chosen = now
        else:
            self.chosen = [self._select(*pair) for pair in zip(self.chosen, now)]

    def _select(self, chosen: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
        """Returns the newer evaluation of a seed if it is better and within the patience."""
        better = now["val_accuracy"] > chosen["val_accuracy"]
        late = self.trainer.patience and now["epoch"] - chosen["epoch"] > self.trainer.patience
        return now if better and not late else chosen

    def _save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"epoch": self.epoch, "chosen": self.chosen, "device": self._device()}
        self.recorder.save_checkpoint(state)

    def _device(self) -> str:
        return next(self.model.parameters()).device.type

    def _resume(self) -> None:
        state, here = self.recorder.load_checkpoint(), self._device()
        if state is None:
            return
        if state["device"] != here:  # the generators of dropout differ
            self.recorder.start_over(f"it was made on {state['device']}, not on {here}")
            return
        with self.recorder.restoring(self.optimizer):
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.chosen = int(state["epoch"]), state["chosen"]


def step(model: nn.Module, optimizer: Any, graph: Graph, train: list[Tensor], epoch: int) -> Tensor:
    """Makes one optimization step; returns the loss (S,) of every network before it.

    Args:
        model: S networks.
        optimizer: of their parameters.
        train: training nodes of each network.
        epoch: the number of the step, from 0.
    """
    torch.manual_seed(mixed_seed("step", epoch))  # for aggregators with dropout
    advance(model, epoch)
    model.train()
    losses = torch.stack([F.cross_entropy(o[own], graph.y[own]) for o, own in zip(model(), train)])
    optimizer.zero_grad()
    losses.sum().backward()  # networks share no parameter, so each gets its own gradient
    optimizer.step()
    settle(model)
    return losses.detach()
