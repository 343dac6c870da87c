"""mIoU of class activation maps as a function of the background threshold."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oversmoothing.distributed import gathered
from oversmoothing.metrics.segmentation import IGNORE, Confusion


class ThresholdCurve:
    """Confusion matrices at several background thresholds, counted in one pass over the pixels.

    At a threshold t, a pixel has the class of its highest score if this score exceeds t, else it is
    background (label 0).

    Args:
        num_classes: C, background included.
        thresholds: in any order.

    Attributes:
        counts: (C, C, T + 1) int64 on the CPU: truth, class of the highest score, number of
            thresholds below that score.
    """

    def __init__(self, num_classes: int, thresholds: Sequence[float]) -> None:
        self.thresholds = torch.tensor(sorted(thresholds))
        C, T = num_classes, len(thresholds)
        self.counts = torch.zeros(C, C, T + 1, dtype=torch.int64)

    def update(self, scores: Tensor, classes: Tensor, truth: Tensor) -> None:
        """Adds images; skips pixels whose truth is 255.

        Args:
            scores: highest score of every pixel.
            classes: 1…C−1, the class that has it; same shape.
            truth: 0…C−1 or 255; same shape.
        """
        C, _, bins = self.counts.shape
        truth = truth.to(scores.device).long()
        exceeded = torch.bucketize(scores, self.thresholds.to(scores))  # t < score
        cell = ((truth * C + classes) * bins + exceeded)[truth != IGNORE]
        self.counts += cell.bincount(minlength=self.counts.numel()).view_as(self.counts).cpu()

    def all_reduce(self) -> None:
        """Sums the counts over all processes; does nothing without ``torch.distributed``."""
        self.counts = sum(gathered(self.counts))

    def at(self, place: int) -> Confusion:
        """Returns the confusion matrix at the threshold with this index."""
        confusion = Confusion(len(self.counts))
        confusion.matrix[:, :-1] = self.counts[..., place + 1 :].sum(-1)
        confusion.matrix[:, 0] += self.counts[..., : place + 1].sum((-1, -2))
        return confusion

    def miou(self) -> dict[float, float]:
        """Returns the mIoU in percent by threshold."""
        places = enumerate(self.thresholds.tolist())
        return {round(t, 6): self.at(place).miou() for place, t in places}
