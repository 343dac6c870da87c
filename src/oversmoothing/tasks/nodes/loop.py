"""The training loop of node classification: full batch, all seeds at once, resumable."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import advance
from oversmoothing.data.graphs.graph import Graph
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.nodes.layers import of_layers
from oversmoothing.tasks.nodes.recipe import FullBatchAdam


class FullBatchLoop:
    """Trains a batch of networks, one per seed, on one graph.

    Args:
        model: the networks; called without arguments, it returns logits (S, N, K).
        graph: with its masks.
        trainer: the recipe.
        recorder: takes logs and checkpoints.
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
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=trainer.lr, weight_decay=trainer.weight_decay
        )
        self.epoch = 0
        self.chosen: list[dict[str, Any]] = []  # per seed, the selected evaluation

    def fit(self) -> None:
        self._resume()
        with self.recorder.progress(self.trainer.epochs, self.recorder.folder.name) as bar:
            bar.update(self.epoch)
            while self.epoch < self.trainer.epochs:
                losses = self._step()
                self.epoch += 1
                if self._evaluates():
                    self._record(losses)
                if self.recorder.checkpoint_due():
                    self._save()
                bar.update(1)

    @torch.no_grad()
    def _layers(self) -> list[dict[str, list[float]]]:
        """Measures smoothness after every layer, per seed."""
        self.model.eval()
        hidden: list[Tensor] = []
        self.model(hidden)
        return of_layers(hidden, self.graph.edges)

    def _step(self) -> Tensor:
        """Makes one optimization step; returns the loss (S,) of every seed before it."""
        advance(self.model, self.epoch)
        self.model.train()
        logits = self.model()[:, self.graph.train]
        targets = self.graph.y[self.graph.train].expand(logits.shape[0], -1)
        losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(dim=1)
        self.optimizer.zero_grad()
        losses.sum().backward()  # seeds share no parameter, so each gets its own gradient
        self.optimizer.step()
        return losses.detach()

    def _evaluates(self) -> bool:
        last = self.epoch == self.trainer.epochs
        return last or self.epoch % self.trainer.eval_every == 0

    def _record(self, losses: Tensor) -> None:
        measured = {**_accuracies(self.model, self.graph), "train_loss": losses.tolist()}
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
            pairs = zip(self.chosen, now)
            self.chosen = [b if b["val_accuracy"] > a["val_accuracy"] else a for a, b in pairs]

    def _save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"epoch": self.epoch, "chosen": self.chosen, "device": self.graph.y.device.type}
        self.recorder.save_checkpoint(state)

    def _resume(self) -> None:
        state = self.recorder.load_checkpoint()
        if state and state["device"] == self.graph.y.device.type:  # the generators' states differ
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.chosen = state["epoch"], state["chosen"]


@torch.no_grad()
def _accuracies(model: nn.Module, graph: Graph) -> dict[str, list[float]]:
    """Returns accuracies in percent, per mask and seed."""
    model.eval()
    right = (model().argmax(dim=-1) == graph.y).double()
    masks = {"test": graph.test, "val": graph.val, "train": graph.train}
    return {
        f"{name}_accuracy": (100 * right[:, mask].mean(dim=1)).tolist()
        for name, mask in masks.items()
    }
