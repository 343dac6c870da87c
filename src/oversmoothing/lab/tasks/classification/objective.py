"""The loss of the classification task: cross-entropy with soft targets, and uniformity."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.lab.data.loading import mixed_seed
from oversmoothing.lab.tasks.classification.augment import erased
from oversmoothing.lab.tasks.classification.mix import Mix
from oversmoothing.metrics.uniformity import uniformity


@dataclass(frozen=True)
class Objective:
    """Mixes a batch and computes its losses.

    As in DeiT, each process mixes the images of its own slice of the batch. The pairs therefore
    depend on the number of processes, but not on the number of parts.

    Args:
        mix: mixes images and smooths targets.
        num_classes: K.
        seed: seeds the mixing, together with the step and the process.
        mean, std: of the backbone's normalisation, in which noise is drawn.
        uniformity: weight of the uniformity loss of the last tokens, each divided by its norm.
    """

    mix: Mix
    num_classes: int
    seed: int
    mean: Tensor
    std: Tensor
    uniformity: float = 0.0

    @torch.no_grad()
    def prepare(self, batch: dict[str, Any], step: int) -> dict[str, Any]:
        """Erases and mixes the images, and adds ``soft`` targets (B, K)."""
        seed = mixed_seed(self.seed, "mix", step, distributed.rank())
        images = erased(batch, self.mean, self.std)
        images, soft = self.mix(images, batch["target"], self.num_classes, seed)
        return batch | {"image": images, "soft": soft}

    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """Returns the losses of a part; summed over parts and processes they are the batch's."""
        share = len(part["image"]) / part["batch_size"]
        if not self.uniformity:
            return {"cls": share * F.cross_entropy(model(part["image"]).float(), part["soft"])}
        logits, tokens = model(part["image"], with_tokens=True)
        with torch.autocast(tokens.device.type, enabled=False):  # 8 bits are too few near 1
            spread = uniformity(F.normalize(tokens.float(), dim=-1)).mean()
        cls = F.cross_entropy(logits.float(), part["soft"])
        return {"cls": share * cls, "uniformity": share * self.uniformity * spread}
