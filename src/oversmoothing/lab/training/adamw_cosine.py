"""AdamW with cosine decay, as DeiT is trained (Touvron et al., ICML 2021, and its code)."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn

from oversmoothing.checks import at_least, of, require
from oversmoothing.errors import InputError
from oversmoothing.lab.training.recipe import Recipe

UNDECAYED = ("pos_embed", "cls_token", "dist_token", "reg_token")


@dataclass(frozen=True)
class AdamWCosine(Recipe):
    """AdamW, linear warm-up, then half a cosine from ``lr`` to ``min_lr``.

    DeiT changes the rate once per epoch; here it changes every step. As in DeiT, the cosine starts
    at step 0, so the warm-up replaces its beginning.

    Args:
        lr: learning rate after warm-up; DeiT: 5e-4 · batch_size/512.
        weight_decay: not applied to biases, other 1-D parameters (norms, scales), position
            embeddings and prefix tokens.
        betas, eps: of AdamW.
        warmup: number of steps over which the rate grows linearly from ``warmup_lr``.
        warmup_lr: learning rate of the first step.
        min_lr: learning rate at the end of the decay.

    Raises:
        InputError: a value is out of range.
    """

    iterations: int = 375300
    batch_size: int = 1024
    lr: float = 1e-3
    weight_decay: float = 0.05
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    warmup: int = 6255
    warmup_lr: float = 1e-6
    min_lr: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_adam(self.betas, self.eps)
        known = of(self, "weight_decay", "warmup", "warmup_lr", "min_lr")
        require("trainer", **at_least(0, **known))
        self.require_warmup(self.warmup)
        if max(self.min_lr, self.warmup_lr) > self.lr:
            raise InputError(
                f"trainer.warmup_lr, .min_lr: expected at most trainer.lr, {self.lr:g}, got "
                f"{self.warmup_lr:g}, {self.min_lr:g}"
            )

    def factor(self, step: int) -> float:
        if step < self.warmup:
            start = self.warmup_lr / self.lr
            return start + (1 - start) * step / self.warmup
        end = self.min_lr / self.lr
        return end + (1 - end) * (1 + math.cos(math.pi * step / self.iterations)) / 2

    def optimizer(self, network: nn.Module) -> torch.optim.AdamW:
        """Uses two groups: with and without weight decay."""
        groups = self.decay_groups(network, self.weight_decay, _decays)
        return torch.optim.AdamW(groups, betas=tuple(self.betas), eps=self.eps, fused=True)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and name.split(".")[-1] not in ("bias", *UNDECAYED)
