"""Adam on the full batch, as ContraNorm's code trains its graph networks."""

from dataclasses import dataclass
from typing import Literal

from oversmoothing.errors import InputError


@dataclass(frozen=True)
class FullBatchAdam:
    """Adam on the full batch.

    Args:
        epochs: number of optimization steps.
        lr: learning rate.
        weight_decay: L2 penalty of Adam, on every parameter.
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
