"""Getting pretrained weights used to an aggregator, without labels.

Weights trained without centering meet it at once in the paper. Here the network with the
aggregator (student) first learns to give the patch tokens that the same weights give without it
(teacher); an extension, off by default.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.backbones.vit import ViT
from oversmoothing.engine import Batch, Training
from oversmoothing.errors import InputError
from oversmoothing.runs import Run
from oversmoothing.trainer import Trainer


@dataclass(frozen=True)
class Adaptation:
    """The stage before the training; all else is as in the training itself.

    Args:
        iterations: optimisation steps.
        lr: of the backbone.
        warmup: steps of linear growth of the rate.

    Raises:
        InputError: fewer than one iteration, or a rate not above 0.
    """

    iterations: int = 2000
    lr: float = 6e-5
    warmup: int = 100

    def __post_init__(self) -> None:
        if self.iterations < 1 or not self.lr > 0:
            raise InputError(
                "task.adaptation: expected iterations of 1 or more and lr above 0, got "
                f"{self.iterations}, {self.lr}"
            )

    def fit(
        self,
        student: ViT,
        teacher: ViT,
        loader: Callable[..., Iterator[Batch]],
        trainer: Trainer,
        run: Run,
        device: torch.device,
    ) -> None:
        """Trains the student in place; nothing to do once the training proper has begun."""
        own = replace(trainer, iterations=self.iterations, lr=self.lr, warmup=self.warmup)
        objective = Imitation(teacher)
        Training(Student(student), objective, loader, own, run, device, phase="adaptation").fit()


class Student(nn.Module):
    """A backbone that is trained by itself."""

    def __init__(self, backbone: ViT) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        return self.backbone(images)[0]

    def parameter_groups(self, lr: float, head_factor: float) -> list[dict[str, Any]]:
        """All that the backbone trains, at ``lr``."""
        return [{"params": [p for p in self.parameters() if p.requires_grad], "lr": lr}]


class Imitation:
    """Mean squared difference of the final tokens, which the last norm has given unit variance."""

    def __init__(self, teacher: ViT) -> None:
        self.teacher = teacher.eval().requires_grad_(False)

    @torch.no_grad()
    def prepare(self, batch: Batch, step: int) -> Batch:
        return batch | {"tokens": self.teacher(batch["image"])[0]}

    def losses(self, model: nn.Module, part: Batch, step: int) -> dict[str, Tensor]:
        share = len(part["image"]) / part["images"]
        tokens = model(part["image"])
        return {"imitation": share * F.mse_loss(tokens.float(), part["tokens"].float())}
