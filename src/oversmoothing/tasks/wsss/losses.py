"""Segmentation loss on pseudo labels (ToCo)."""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from oversmoothing import distributed
from oversmoothing.metrics.segmentation import IGNORE


class Counts(NamedTuple):
    """Numbers of background and foreground pixels in the batch of all processes."""

    background: Tensor
    foreground: Tensor


def count_labels(labels: Tensor) -> Counts:
    """Counts labels over all processes, so that parts of a batch share one denominator."""
    foreground = (labels > 0) & (labels != IGNORE)
    both = distributed.sum_over_processes(Counts((labels == 0).sum(), foreground.sum()))
    return Counts(*both)


def segmentation_loss(
    logits: Tensor, labels: Tensor, counts: Counts, toco_compat: bool = False
) -> Tensor:
    """½ (mean cross-entropy over background pixels + mean over foreground pixels).

    A mean over no pixels is 0, or NaN with ``toco_compat``, as in ToCo's code.

    Args:
        logits: (b, 1 + K, h, w), a part of the batch; they are upsampled to the labels.
        labels: (b, H, W) in 0…K; 255 is ignored.
        counts: of the whole batch, so that the losses of the parts add up.
        toco_compat: see above.

    Shapes: -> scalar.
    """
    logits = F.interpolate(logits.float(), labels.shape[-2:], mode="bilinear")
    each = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")
    background = each[labels == 0].sum()
    foreground = each[(labels > 0) & (labels != IGNORE)].sum()
    least = 0 if toco_compat else 1
    parts = (background, foreground), (n.clamp(min=least) for n in counts)
    return 0.5 * sum(total / n for total, n in zip(*parts))
