"""AdamW with linear decay to 0, as ContraNorm's scripts fine-tune language models."""

import dataclasses
import warnings
from dataclasses import dataclass, field

import torch
from torch import nn

from oversmoothing.checks import at_least, of, require
from oversmoothing.errors import InputError
from oversmoothing.lab.training.recipe import Recipe


@dataclass(frozen=True)
class AdamWLinear(Recipe):
    """AdamW; the rate grows linearly over ``warmup`` steps and falls linearly to 0.

    Args:
        iterations: number of optimization steps; used if ``epochs`` is None.
        epochs: passes over the training data; None: train for ``iterations``.
        weight_decay: applied to matrices, not to biases and norms.
        betas, eps: of AdamW.
        warmup: number of steps over which the rate grows linearly from 0.

    Raises:
        InputError: a value is out of range.
    """

    iterations: int = 1000
    batch_size: int = 32
    lr: float = 2e-5
    epochs: float | None = 5.0
    weight_decay: float = 0.0
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    warmup: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_adam(self.betas, self.eps)
        require("trainer", **at_least(0, **of(self, "weight_decay", "warmup")))
        if self.epochs is not None and not self.epochs > 0:
            raise InputError(
                f"trainer.epochs: expected above 0, or null to count trainer.iterations, "
                f"got {self.epochs}"
            )
        if self.epochs is None:
            self.require_warmup(self.warmup)

    def over(self, examples: int) -> "AdamWLinear":
        """Returns the recipe with ``epochs`` over ``examples`` converted to ``iterations``.

        Warns if ``iterations`` was set and has no effect.

        Raises:
            InputError: the warm-up is longer than the training.
        """
        if self.epochs is None:
            return self
        if self.iterations != AdamWLinear.iterations:
            warnings.warn(
                f"trainer.iterations={self.iterations} has no effect with trainer.epochs="
                f"{self.epochs:g}; set trainer.epochs=null to train for this number of steps",
                stacklevel=2,
            )
        steps = max(1, round(self.epochs * examples / self.batch_size))
        if self.warmup >= steps:
            raise InputError(
                f"trainer.warmup: expected below {steps}, the iterations of trainer.epochs="
                f"{self.epochs:g}, got {self.warmup}; lower it, or train for longer"
            )
        return dataclasses.replace(self, iterations=steps, epochs=None)

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return step / self.warmup
        return (self.iterations - step) / (self.iterations - self.warmup)

    def optimizer(self, network: nn.Module) -> torch.optim.AdamW:
        """Applies weight decay to parameters of two or more dimensions."""
        groups = self.decay_groups(network, self.weight_decay, lambda _, p: p.ndim > 1)
        return torch.optim.AdamW(groups, betas=tuple(self.betas), eps=self.eps, fused=True)
