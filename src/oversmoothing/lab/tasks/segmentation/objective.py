"""Cross-entropy over pixels."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.tasks.segmentation.network import upsampled
from oversmoothing.lab.training.batch import Batch
from oversmoothing.metrics.segmentation import IGNORE


@dataclass(frozen=True)
class PixelCrossEntropy:
    """Sum of the cross-entropy of the labelled pixels, divided by the number of all pixels.

    As in EMANet's code, the number includes padding. A mean over labelled pixels would give small
    images more weight.

    Args:
        aux_weight: weight of the auxiliary head's loss; 0: there is no such head.
        aligned: how logits are upsampled, see ``upsampled``.
    """

    aux_weight: float
    aligned: bool = True

    def prepare(self, batch: Batch, step: int) -> Batch:
        """Returns the batch unchanged."""
        return batch

    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """Returns the losses of a part; summed over parts and processes they are the batch's.

        Shapes: ``image`` (b, 3, S, S), ``mask`` (b, S, S), 255 where the label is unknown.
        """
        out, mask = model(part["image"]), part["mask"]
        pixels = part["batch_size"] * mask[0].numel()
        losses = {"seg": self._summed(out.seg, mask) / pixels}
        if self.aux_weight:
            losses["aux"] = self.aux_weight * self._summed(out.aux, mask) / pixels
        return losses

    def _summed(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Sums image by image on a CPU, since the logits of one image fit into the cache."""
        images = 1 if logits.device.type == "cpu" else len(logits)
        parts = zip(logits.split(images), mask.split(images))
        return torch.stack([self._summed_at_once(*part) for part in parts]).sum()

    def _summed_at_once(self, logits: Tensor, mask: Tensor) -> Tensor:
        logits = upsampled(logits, mask.shape[-2:], self.aligned)
        each = F.cross_entropy(logits, mask, ignore_index=IGNORE, reduction="none")
        return each.sum()  # reduction="sum" is not deterministic on GPUs
