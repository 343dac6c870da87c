"""Segmentation loss on pseudo labels (ToCo; recipes C)."""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from oversmoothing import distributed
from oversmoothing.metrics.segmentation import IGNORE


class Counts(NamedTuple):
    """Pixels labelled background and foreground in the batch of all processes."""

    background: Tensor
    foreground: Tensor


def count_labels(labels: Tensor) -> Counts:
    """Counts over the whole batch, so that parts and processes share one denominator."""
    foreground = (labels > 0) & (labels != IGNORE)
    both = distributed.sum_over_processes(Counts((labels == 0).sum(), foreground.sum()))
    return Counts(*both)


def segmentation_loss(
    logits: Tensor, labels: Tensor, counts: Counts, toco_compat: bool = False
) -> Tensor:
    """½ (mean cross-entropy over background pixels + mean over foreground pixels).

    A batch without any background or foreground pixel contributes 0 for it; ``toco_compat`` lets
    it be 0/0 = NaN, as ToCo's code does.

    Args:
        logits: (b, 1 + K, h, w), a part of the batch; upsampled to the labels.
        labels: (b, H, W) in 0…K, 255 ignored.
        counts: of the whole batch; the parts' losses add up to the batch's.

    Shapes: -> scalar.
    """
    logits = F.interpolate(logits.float(), labels.shape[-2:], mode="bilinear")
    each = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")
    background = each[labels == 0].sum()
    foreground = each[(labels > 0) & (labels != IGNORE)].sum()
    least = 0 if toco_compat else 1
    parts = (background, foreground), (n.clamp(min=least) for n in counts)
    return 0.5 * sum(total / n for total, n in zip(*parts))
