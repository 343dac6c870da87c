"""How networks are trained on images: AdamW, linear warm-up, polynomial decay."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from oversmoothing import distributed
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Trainer:
    """How networks are trained on images.

    Args:
        iterations: optimisation steps.
        batch_size: images a step, over all processes.
        accumulate: parts that a process takes its share of a batch in; less memory, same result.
        lr: of the backbone, after warm-up.
        head_factor: learning rate of new layers over ``lr``.
        weight_decay: AdamW's, on every parameter.
        betas, eps: AdamW's.
        warmup: steps of linear growth from ``warmup_ratio`` times the rate.
        warmup_ratio: rate of the first step over that after warm-up.
        power: of the polynomial decay (1 − t/iterations)^power.
        precision: fp32, or bf16 autocast.
        compile: run the network through ``torch.compile``.
        workers: processes that load images, for each training process.
        log_every: steps between two log lines.

    Raises:
        InputError: a value out of range.
    """

    iterations: int = 20000
    batch_size: int = 4
    accumulate: int = 1
    lr: float = 6e-5
    head_factor: float = 10.0
    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    warmup: int = 1500
    warmup_ratio: float = 1e-6
    power: float = 0.9
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    workers: int = 2
    log_every: int = 50

    def __post_init__(self) -> None:
        for key in ("iterations", "batch_size", "accumulate", "log_every"):
            if getattr(self, key) < 1:
                raise InputError(f"trainer.{key}: expected 1 or more, got {getattr(self, key)}")
        for key in ("weight_decay", "warmup", "warmup_ratio", "power", "workers"):
            if getattr(self, key) < 0:
                raise InputError(f"trainer.{key}: expected 0 or more, got {getattr(self, key)}")
        if not (self.lr > 0 and self.head_factor > 0):
            raise InputError(
                f"trainer.lr, .head_factor: expected above 0, got {self.lr}, {self.head_factor}"
            )
        share = self.batch_size // distributed.world()
        if self.batch_size % distributed.world() or share % self.accumulate:
            raise InputError(
                f"trainer.batch_size: {self.batch_size} images do not divide among "
                f"{distributed.world()} processes × trainer.accumulate={self.accumulate} parts"
            )

    def factor(self, step: int) -> float:
        """Learning rate of 0-based step ``step`` over ``lr`` (ToCo's schedule; recipes C)."""
        if step < self.warmup:
            return 1 - (1 - step / self.warmup) * (1 - self.warmup_ratio)
        return (1 - step / self.iterations) ** self.power

    def optimizer(self, groups: list[dict]) -> torch.optim.AdamW:
        """AdamW over groups with their own ``lr``."""
        return torch.optim.AdamW(
            groups, betas=tuple(self.betas), eps=self.eps, weight_decay=self.weight_decay
        )
