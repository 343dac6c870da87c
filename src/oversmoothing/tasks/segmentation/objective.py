"""Cross-entropy of pixels."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.tasks.segmentation.network import upsampled
from oversmoothing.training.batch import Batch

IGNORE = 255


class PixelCrossEntropy:
    """Σ of the labelled pixels' cross-entropy over the number of all pixels, padding included.

    EMANet's code divides so; a mean over labelled pixels would weigh small images more.

    Args:
        aux_weight: of the auxiliary head's loss; 0: there is none.
    """

    def __init__(self, aux_weight: float) -> None:
        self.aux_weight = aux_weight

    def prepare(self, batch: Batch, step: int) -> Batch:
        return batch

    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """Shapes: ``image`` (b, 3, S, S), ``mask`` (b, S, S) with 255 where nothing is known."""
        out, mask = model(part["image"]), part["mask"]
        pixels = part["batch_size"] * mask[0].numel()
        losses = {"seg": _summed(out.seg, mask) / pixels}
        if self.aux_weight:
            losses["aux"] = self.aux_weight * _summed(out.aux, mask) / pixels
        return losses


def _summed(logits: Tensor, mask: Tensor) -> Tensor:
    logits = upsampled(logits, mask.shape[-2:])
    return F.cross_entropy(logits, mask, ignore_index=IGNORE, reduction="sum")
