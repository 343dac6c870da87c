"""Getting pretrained weights used to an aggregator, without labels.

Weights trained without centering meet it at once in the paper. Here the network with the
aggregator (student) first learns to give the patch tokens that the same weights give without it
(teacher); an extension, off by default.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.backbones.vit.vit import ViT
from oversmoothing.store.recorder import Recorder
from oversmoothing.training.adamw_poly import AdamWPoly
from oversmoothing.training.batch import Batch
from oversmoothing.training.loop import TrainingLoop


def adapt(
    student: ViT,
    teacher: ViT,
    iterations: int,
    loader: Callable[..., Iterator[Batch]],
    trainer: AdamWPoly,
    recorder: Recorder,
    device: torch.device,
) -> None:
    """Trains the student in place; nothing to do once the training proper has begun.

    Args:
        student: with the aggregator.
        teacher: the same weights without.
        iterations: optimisation steps; all else is the trainer's.
        loader, trainer, recorder, device: as the training itself gets them.
    """
    own = replace(trainer, iterations=iterations)
    objective = Imitation(teacher)
    TrainingLoop(
        Student(student), objective, loader, own, recorder, device, phase="adaptation"
    ).fit()


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
        share = len(part["image"]) / part["batch_size"]
        tokens = model(part["image"])
        return {"imitation": share * F.mse_loss(tokens.float(), part["tokens"].float())}
