"""What the classifier is trained for: cross-entropy with soft targets."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.data.batches import mixed_seed
from oversmoothing.tasks.classification.mix import Mix


class Objective:
    """Losses of a batch, for the engine.

    Images are mixed within a process's share of a batch, at a share of its own, as DeiT does: other
    numbers of processes see other pairs, other numbers of parts do not.

    Args:
        mix: how.
        num_classes: K.
        seed: of what is random in it, with the step and the process.
    """

    def __init__(self, mix: Mix, num_classes: int, seed: int) -> None:
        self.mix, self.num_classes, self.seed = mix, num_classes, seed

    @torch.no_grad()
    def prepare(self, batch: dict[str, Any], step: int) -> dict[str, Any]:
        """Mixes the images, and adds ``soft`` targets (B, K)."""
        seed = mixed_seed(self.seed, "mix", step, distributed.rank())
        images, soft = self.mix(batch["image"], batch["target"], self.num_classes, seed)
        return batch | {"image": images, "soft": soft}

    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """The loss of a part; the sum over parts and processes is the batch's."""
        share = len(part["image"]) / part["batch_size"]
        logits = model(part["image"]).float()
        return {"cls": share * F.cross_entropy(logits, part["soft"])}
