"""AdamW with polynomial decay, as ToCo is trained (Ru et al., CVPR 2023, and its code)."""

from dataclasses import dataclass, field

import torch
from torch import nn

from oversmoothing.checks import above, at_least, of, require
from oversmoothing.lab.training.recipe import Recipe


@dataclass(frozen=True)
class AdamWPoly(Recipe):
    """AdamW, linear warm-up, polynomial decay.

    Args:
        lr: learning rate of the backbone after warm-up.
        head_factor: learning rate of layers outside the backbone, relative to ``lr``.
        weight_decay: applied to every parameter.
        betas, eps: of AdamW.
        warmup: number of steps over which the rate grows linearly.
        warmup_ratio: rate of the first step, relative to that after warm-up.
        power: exponent of the decay (1 − t/iterations)^power.

    Raises:
        InputError: a value is out of range.
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
        self.require_adam(self.betas, self.eps)
        known = at_least(0, **of(self, "weight_decay", "warmup", "warmup_ratio", "power"))
        require("trainer", **known, **above(0, head_factor=self.head_factor))
        self.require_warmup(self.warmup)

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return 1 - (1 - step / self.warmup) * (1 - self.warmup_ratio)
        return (1 - step / self.iterations) ** self.power

    def optimizer(self, network: nn.Module) -> torch.optim.AdamW:
        """Uses the groups that ``network.parameter_groups(lr, head_factor)`` returns."""
        return torch.optim.AdamW(
            network.parameter_groups(self.lr, self.head_factor),
            betas=tuple(self.betas),
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=True,  # one pass over the parameters
        )
