"""Adapts pretrained weights to an aggregator before the training, without labels.

In the paper, weights trained without centering are used directly with it. Here the network with the
aggregator (student) first learns to output the patch tokens of the same weights without it
(teacher). This extension of the paper is off by default.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.backbones.vit.vit import ViT
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import OnBackbone
from oversmoothing.lab.training.batch import Batch
from oversmoothing.lab.training.loop import TrainingLoop
from oversmoothing.lab.training.recipe import Recipe


def adapt(
    student: ViT,
    teacher: ViT,
    iterations: int,
    loader: Callable[..., Iterator[Batch]],
    trainer: Recipe,
    recorder: Recorder,
    device: torch.device,
) -> None:
    """Trains the student in place; does nothing if a resumed run has finished this phase.

    Args:
        student: with the aggregator.
        teacher: the same weights without the aggregator.
        iterations: number of optimisation steps; all other settings come from ``trainer``.
        loader, trainer, recorder, device: see ``TrainingLoop``.
    """
    own = replace(trainer, iterations=iterations)
    parts = (Student(student), Imitation(teacher), loader, own, recorder, device)
    TrainingLoop(*parts, phase="adaptation").fit()


class Student(OnBackbone):
    """A backbone without heads, in a form for the training loop."""

    def __init__(self, backbone: ViT) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        return self.backbone(images)[0]

    def parameter_groups(self, lr: float, head_factor: float) -> list[dict[str, Any]]:
        """Returns all trained parameters, at ``lr``."""
        return [{"params": [p for p in self.parameters() if p.requires_grad], "lr": lr}]


class Imitation:
    """Mean squared difference of the final tokens, which the last norm scales to unit variance."""

    def __init__(self, teacher: ViT) -> None:
        self.teacher = teacher.eval().requires_grad_(False)

    @torch.no_grad()
    def prepare(self, batch: Batch, step: int) -> Batch:
        """Adds the teacher's ``tokens``."""
        return batch | {"tokens": self.teacher(batch["image"])[0]}

    def losses(self, model: nn.Module, part: Batch, step: int) -> dict[str, Tensor]:
        """Returns the loss of a part; summed over parts and processes it is the batch's loss."""
        share = len(part["image"]) / part["batch_size"]
        tokens = model(part["image"])
        return {"imitation": share * F.mse_loss(tokens.float(), part["tokens"].float())}
