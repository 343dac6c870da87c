"""The base classes of training recipes: an optimizer with its schedule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from oversmoothing import distributed
from oversmoothing.checks import above, at_least, of, require
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """Options that all recipes share; subclasses add an optimizer and a schedule.

    Args:
        iterations: number of optimization steps.
        batch_size: examples per step, over all processes.
        accumulate: number of parts into which a batch is split to save memory. The result is
            the same without batch norms, which see one part at a time, and without dropout and
            stochastic depth, which draw other random numbers.
        lr: learning rate.
        precision: fp32, or bf16 for autocast.
        compile: compile the backbone for the training with ``torch.compile``.
        workers: processes that load data, per training process; None: one for each core.
        log_every: steps between two log lines.

    Raises:
        InputError: a value is out of range.
    """

    iterations: int = 20000
    batch_size: int = 4
    accumulate: int = 1
    lr: float = 6e-5
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    workers: int | None = 2
    log_every: int = 50

    def __post_init__(self) -> None:
        counts = of(self, "iterations", "batch_size", "accumulate", "log_every")
        rules = at_least(1, **counts) | at_least(0, workers=self.workers) | above(0, lr=self.lr)
        require("trainer", **rules)
        share = self.batch_size // distributed.world()
        if self.batch_size % distributed.world() or share % self.accumulate:
            raise InputError(
                f"trainer.batch_size: {self.batch_size} examples do not divide among "
                f"{distributed.world()} processes × trainer.accumulate={self.accumulate} parts; "
                f"choose a multiple of {distributed.world() * self.accumulate}"
            )

    def require_warmup(self, warmup: int) -> None:
        """Raises InputError unless the warm-up ends before the training."""
        if warmup >= self.iterations:
            raise InputError(
                f"trainer.warmup: expected below trainer.iterations={self.iterations}, got "
                f"{warmup}; lower it, or train for longer"
            )

    def require_adam(self, betas: list[float], eps: float) -> None:
        """Raises InputError if options of Adam are out of range."""
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise InputError(f"trainer.betas: expected two numbers, 0 to below 1, got {betas}")
        if not eps >= 0:
            raise InputError(f"trainer.eps: expected 0 or more, got {eps}")

    def over(self, examples: int) -> "Recipe":
        """Returns the recipe for this number of training examples, with epochs as iterations."""
        return self

    def factor(self, step: int) -> float:
        """Returns the learning rate at a step, from 0, relative to that of its group."""
        raise NotImplementedError

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Creates the optimizer of the trained parameters, in groups with their own ``lr``."""
        raise NotImplementedError

    def decay_groups(
        self, network: nn.Module, decay: float, decays: Callable[[str, nn.Parameter], bool]
    ) -> list[dict]:
        """Groups the trained parameters into those with weight decay, by ``decays``, and others."""
        groups = [{"params": [], "lr": self.lr, "weight_decay": rate} for rate in (decay, 0.0)]
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                groups[0 if decays(name, parameter) else 1]["params"].append(parameter)
        return groups
