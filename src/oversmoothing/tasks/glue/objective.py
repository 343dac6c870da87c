"""Loss and predictions of a sentence classifier."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

Batch = dict[str, Any]


class Objective:
    """Cross-entropy for classes, mean squared error for scores.

    Args:
        num_classes: K; 0: scores.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def prepare(self, batch: Batch, step: int) -> Batch:
        """Return the batch unchanged."""
        return batch

    def losses(self, model: nn.Module, part: Batch, step: int) -> dict[str, Tensor]:
        """Return this part's share of the mean loss over the batch."""
        share = len(part["label"]) / part["batch_size"]
        out = model(part["tokens"], part["mask"], part["types"]).float()
        if self.num_classes:
            return {"cls": share * F.cross_entropy(out, part["label"])}
        return {"mse": share * F.mse_loss(out[:, 0], part["label"])}


def predicted(out: Tensor) -> Tensor:
    """Return classes or scores. Shapes: (B, K or 1) -> (B,)."""
    return out.argmax(dim=1) if out.shape[1] > 1 else out[:, 0]
