"""How networks are trained: what all recipes share, and AdamW with polynomial decay (ToCo's)."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from oversmoothing import distributed
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Loop:
    """What every recipe tells the training loop; recipes add their optimiser and schedule.

    Args:
        iterations: optimisation steps.
        batch_size: examples a step, over all processes.
        accumulate: parts that a process takes its share of a batch in; less memory, same result.
        lr: learning rate.
        precision: fp32, or bf16 autocast.
        compile: run the network through ``torch.compile``.
        workers: processes that load data, for each training process.
        log_every: steps between two log lines.

    Raises:
        InputError: a value out of range.
    """

    iterations: int = 20000
    batch_size: int = 4
    accumulate: int = 1
    lr: float = 6e-5
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    workers: int = 2
    log_every: int = 50

    def __post_init__(self) -> None:
        self.require(1, "iterations", "batch_size", "accumulate", "log_every")
        self.require(0, "workers")
        if not self.lr > 0:
            raise InputError(f"trainer.lr: expected above 0, got {self.lr}")
        share = self.batch_size // distributed.world()
        if self.batch_size % distributed.world() or share % self.accumulate:
            raise InputError(
                f"trainer.batch_size: {self.batch_size} examples do not divide among "
                f"{distributed.world()} processes × trainer.accumulate={self.accumulate} parts"
            )

    def require(self, least: float, *keys: str) -> None:
        """Raises InputError where one of these options is below ``least``."""
        for key in keys:
            if getattr(self, key) < least:
                raise InputError(
                    f"trainer.{key}: expected {least:g} or more, got {getattr(self, key)}"
                )

    def factor(self, step: int) -> float:
        """Learning rate of 0-based step ``step`` over that of its group."""
        raise NotImplementedError

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Over the parameters that are trained, in groups with their own ``lr``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Trainer(Loop):
    """AdamW, linear warm-up, polynomial decay (ToCo's code; recipes C).

    Args:
        lr: of the backbone, after warm-up.
        head_factor: learning rate of new layers over ``lr``.
        weight_decay: AdamW's, on every parameter.
        betas, eps: AdamW's.
        warmup: steps of linear growth from ``warmup_ratio`` times the rate.
        warmup_ratio: rate of the first step over that after warm-up.
        power: of the polynomial decay (1 − t/iterations)^power.

    Raises:
        InputError: a value out of range.
    """

    head_factor: float = 10.0
    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    warmup: int = 1500
    warmup_ratio: float = 1e-6
    power: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0, "weight_decay", "warmup", "warmup_ratio", "power")
        if not self.head_factor > 0:
            raise InputError(f"trainer.head_factor: expected above 0, got {self.head_factor}")

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return 1 - (1 - step / self.warmup) * (1 - self.warmup_ratio)
        return (1 - step / self.iterations) ** self.power

    def optimizer(self, network: nn.Module) -> torch.optim.AdamW:
        """The network's ``parameter_groups(lr, head_factor)`` tell new layers from the backbone."""
        return torch.optim.AdamW(
            network.parameter_groups(self.lr, self.head_factor),
            betas=tuple(self.betas),
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=True,  # one pass over the parameters instead of one for each operation
        )
