"""Intersection over union (IoU) from one confusion matrix over all images."""

from collections.abc import Collection
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from oversmoothing.distributed import gathered
from oversmoothing.errors import InputError

IGNORE = 255  # in a mask: the pixel is not counted; in a prediction: no decision


class Confusion:
    """Counts pixels by true and by predicted label.

    Args:
        num_classes: C, background included.
        unsure: how a prediction of 255 counts. ``wrong``: as a missed pixel of its true class.
            ``drop``: not at all, as in ToCo's ``pseudo_scores``; this flatters labels that decide
            few pixels, so report :meth:`decided` with it. ToCo's ``scores`` and mmsegmentation
            have no such predictions.

    Attributes:
        matrix: (C, C + 1) int64 on the CPU. Rows: truth. Columns: prediction, the last one unsure.

    Raises:
        InputError: C not in 1…255, or an unknown ``unsure``.
    """

    def __init__(self, num_classes: int, unsure: Literal["wrong", "drop"] = "wrong") -> None:
        if not 1 <= num_classes <= IGNORE:
            raise InputError(f"num_classes: expected 1 to {IGNORE} labels, got {num_classes}")
        if unsure not in ("wrong", "drop"):
            raise InputError(f"unsure: expected wrong or drop, got {unsure}")
        self.unsure = unsure
        self.matrix = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64)

    def update(
        self, prediction: Tensor | np.ndarray, truth: Tensor | np.ndarray, name: str = "images"
    ) -> None:
        """Adds images; skips pixels whose truth is 255.

        Args:
            prediction: (…) integer, 0…C−1 or 255, on any device.
            truth: same shape and values.
            name: of the image, for messages.

        Raises:
            InputError: shapes differ, or a value is not a label; the counts stay unchanged.
        """
        C = len(self.matrix)
        if tuple(prediction.shape) != tuple(truth.shape):
            raise InputError(
                f"{name}: prediction {tuple(prediction.shape)} and truth {tuple(truth.shape)} "
                "differ in shape; resize the prediction to the truth"
            )
        truth = _labels(truth, C, f"{name}: truth")
        prediction = _labels(prediction, C, f"{name}: prediction").to(truth.device)
        column = prediction.masked_fill(prediction == IGNORE, C)
        cell = (truth * (C + 1) + column)[truth != IGNORE]
        self.matrix += cell.bincount(minlength=self.matrix.numel()).view(C, C + 1).cpu()

    def all_reduce(self) -> None:
        """Sums the counts over all processes; does nothing without ``torch.distributed``."""
        self.matrix = sum(gathered(self.matrix))

    def iou(self) -> list[float | None]:
        """IoU of every class in percent; None for a class that is neither true nor predicted."""
        hit, true, predicted = self._areas()
        union = true + predicted - hit
        return [100 * h / u if u else None for h, u in zip(hit.tolist(), union.tolist())]

    def miou(self, labels: Collection[int] | None = None) -> float:
        """Mean IoU in percent over the classes that occur in the truth (ToCo); NaN if none does.

        mmsegmentation also averages over classes that are predicted but never occur, with IoU 0.
        The two agree if every class occurs.

        Args:
            labels: the mean is over these alone; None: over all.
        """
        occurs, ious = (self._areas()[1] > 0).tolist(), enumerate(self.iou())
        wanted = (pair for pair in ious if labels is None or pair[0] in labels)
        found = [iou for label, iou in wanted if occurs[label] and iou is not None]
        return sum(found) / len(found) if found else float("nan")

    def decided(self) -> float:
        """Percent of the counted pixels whose prediction is not 255; NaN without pixels."""
        return self._percent(self.matrix[:, :-1])

    def accuracy(self) -> float:
        """Percent of the counted pixels whose prediction is right; NaN without pixels."""
        return self._percent(self.matrix.diagonal())

    def _percent(self, part: Tensor) -> float:
        total = int(self.matrix.sum())
        return 100 * int(part.sum()) / total if total else float("nan")

    def _areas(self) -> tuple[Tensor, Tensor, Tensor]:
        """Number of pixels per class that are hit, true, predicted; each (C,)."""
        certain = self.matrix[:, :-1]
        counted = certain if self.unsure == "drop" else self.matrix
        return certain.diagonal(), counted.sum(dim=1), certain.sum(dim=0)


def _labels(values: Tensor | np.ndarray, C: int, what: str) -> Tensor:
    """Flattens labels to int64; raises InputError unless all are 0…C−1 or 255."""
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(np.require(values, requirements="W"))
    if values.is_floating_point() or values.is_complex():
        raise InputError(f"{what}: expected integer labels, got {values.dtype}; take the argmax")
    values = values.flatten().long()
    bad = values[((values < 0) | (values >= C)) & (values != IGNORE)]
    if len(bad):
        raise InputError(
            f"{what}: expected labels 0 to {C - 1}, or {IGNORE}, got {int(bad[0])}; "
            "check the number of classes and that the file is a mask"
        )
    return values
