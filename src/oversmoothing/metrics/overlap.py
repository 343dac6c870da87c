"""Intersection over union (IoU) from areas that are summed over images."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from torch import Tensor

from oversmoothing.distributed import gathered
from oversmoothing.errors import InputError

MOST = 255  # labels are 0…254; 255 is not a label


class Overlap(ABC):
    """Base class of metrics that count pixels and compute IoU from the counts.

    Args:
        num_classes: C, background included.
        unsure: how a prediction of 255 counts, ``wrong`` or ``drop``.

    Attributes:
        matrix: int64 counts on the CPU, summed over images.

    Raises:
        InputError: C not in 1…255, or an unknown ``unsure``.
    """

    matrix: Tensor

    def __init__(self, num_classes: int, unsure: str) -> None:
        if not 1 <= num_classes <= MOST:
            raise InputError(f"num_classes: expected 1 to {MOST} labels, got {num_classes}")
        if unsure not in ("wrong", "drop"):
            raise InputError(f"unsure: expected wrong or drop, got {unsure}")
        self.num_classes, self.unsure = num_classes, unsure

    @abstractmethod
    def areas(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the pixels per class that are correct, true, predicted; each (C,)."""

    def all_reduce(self) -> None:
        """Sums the counts over all processes; does nothing without ``torch.distributed``."""
        self.matrix = sum(gathered(self.matrix))

    def iou(self) -> list[float | None]:
        """IoU of every class in percent; None for a class that is neither true nor predicted."""
        hit, true, predicted = self.areas()
        union = true + predicted - hit
        return [100 * h / u if u else None for h, u in zip(hit.tolist(), union.tolist())]

    def miou(self, labels: Collection[int] | None = None) -> float:
        """Mean IoU in percent over the classes that occur in the truth (ToCo); NaN if none does.

        mmsegmentation also averages over classes that are predicted but never occur, with IoU 0.
        The two agree if every class occurs.

        Args:
            labels: classes to average over; None: all.
        """
        occurs, ious = (self.areas()[1] > 0).tolist(), enumerate(self.iou())
        wanted = (pair for pair in ious if labels is None or pair[0] in labels)
        found = [iou for label, iou in wanted if occurs[label] and iou is not None]
        return sum(found) / len(found) if found else float("nan")
