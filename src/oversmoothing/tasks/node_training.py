"""The training loop of node classification: full batch, all seeds at once, resumable."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import advance
from oversmoothing.data.graph import Graph
from oversmoothing.errors import InputError
from oversmoothing.metrics.layers import of_layers
from oversmoothing.runs import Run


@dataclass(frozen=True)
class Trainer:
    """How the networks are trained: Adam, full batch.

    Args:
        epochs: optimisation steps.
        lr: learning rate.
        weight_decay: L2 penalty inside Adam, on every parameter.
        selection: ``last`` epoch's weights, or those of the ``best-val`` accuracy (the earliest
            of equals), per seed.
        eval_every: epochs between two evaluations; ``best-val`` chooses among these.

    Raises:
        InputError: epochs or eval_every below 1, or lr not above 0.
    """

    epochs: int = 200
    lr: float = 0.005
    weight_decay: float = 5e-4
    selection: Literal["last", "best-val"] = "last"
    eval_every: int = 20

    def __post_init__(self) -> None:
        for key in ("epochs", "eval_every"):
            if getattr(self, key) < 1:
                raise InputError(f"trainer.{key}: expected 1 or more, got {getattr(self, key)}")
        if not self.lr > 0:
            raise InputError(f"trainer.lr: expected a rate above 0, got {self.lr}")
        if not self.weight_decay >= 0:
            raise InputError(f"trainer.weight_decay: expected 0 or more, got {self.weight_decay}")


class Training:
    """The state of one training: what a checkpoint holds, and the loop that moves it."""

    def __init__(
        self, model: nn.Module, graph: Graph, trainer: Trainer, run: Run, layer_metrics: bool
    ) -> None:
        self.model, self.graph, self.trainer, self.run = model, graph, trainer, run
        self.layer_metrics = layer_metrics
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=trainer.lr, weight_decay=trainer.weight_decay
        )
        self.epoch = 0
        self.chosen: list[dict[str, Any]] = []  # per seed, what the selection rule holds best

    def fit(self) -> None:
        self._resume()
        with self.run.progress(self.trainer.epochs, self.run.dir.name) as bar:
            bar.update(self.epoch)
            while self.epoch < self.trainer.epochs:
                losses = self._step()
                self.epoch += 1
                if self._evaluates():
                    self._record(losses)
                if self.run.checkpoint_due():
                    self._save()
                bar.update(1)

    @torch.no_grad()
    def _layers(self) -> list[dict[str, list[float]]]:
        """Smoothness metrics after every layer of the networks as they are now, per seed."""
        self.model.eval()
        hidden: list[Tensor] = []
        self.model(hidden)
        return of_layers(hidden, self.graph.edges)

    def _step(self) -> Tensor:
        """One optimisation step; the loss (S,) of every seed before it."""
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
        self.run.log(epoch=self.epoch, **measured)
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
        self.run.save_checkpoint(state)

    def _resume(self) -> None:
        state = self.run.load_checkpoint()
        if state and state["device"] == self.graph.y.device.type:  # the generators' states differ
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.chosen = state["epoch"], state["chosen"]


@torch.no_grad()
def _accuracies(model: nn.Module, graph: Graph) -> dict[str, list[float]]:
    """Percent of nodes right, per mask and seed."""
    model.eval()
    right = (model().argmax(dim=-1) == graph.y).double()
    masks = {"test": graph.test, "val": graph.val, "train": graph.train}
    return {
        f"{name}_accuracy": (100 * right[:, mask].mean(dim=1)).tolist()
        for name, mask in masks.items()
    }
