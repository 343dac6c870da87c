"""Intersection over union (IoU) from one confusion matrix over all images."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.metrics.overlap import Overlap

IGNORE = 255  # in a mask: the pixel is not counted; in a prediction: no decision


class Confusion(Overlap):
    """Counts pixels by true and by predicted label.

    Args:
        num_classes: C, background included.
        unsure: how a prediction of 255 counts. ``wrong``: as a missed pixel of its true class.
            ``drop``: not at all, as in ToCo's ``pseudo_scores``; this raises the IoU of labels that
            decide few pixels, so report :meth:`decided` with it. ToCo's ``scores`` and
            mmsegmentation have no such predictions.

    Attributes:
        matrix: (C, C + 1) int64 on the CPU. Rows: truth. Columns: prediction, the last one unsure.

    Raises:
        InputError: C not in 1…255, or an unknown ``unsure``.
    """

    def __init__(self, num_classes: int, unsure: Literal["wrong", "drop"] = "wrong") -> None:
        super().__init__(num_classes, unsure)
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
        C = self.num_classes
        prediction, truth = (x.flatten() for x in checked(prediction, truth, C, name))
        column = prediction.masked_fill(prediction == IGNORE, C)
        cell = (truth * (C + 1) + column)[truth != IGNORE]
        self.matrix += cell.bincount(minlength=self.matrix.numel()).view(C, C + 1).cpu()

    def decided(self) -> float:
        """Percent of the counted pixels whose prediction is not 255; NaN without pixels."""
        return self._percent(self.matrix[:, :-1])

    def accuracy(self) -> float:
        """Percent of the counted pixels whose prediction is right; NaN without pixels."""
        return self._percent(self.matrix.diagonal())

    def _percent(self, part: Tensor) -> float:
        total = int(self.matrix.sum())
        return 100 * int(part.sum()) / total if total else float("nan")

    def areas(self) -> tuple[Tensor, Tensor, Tensor]:
        certain = self.matrix[:, :-1]
        counted = certain if self.unsure == "drop" else self.matrix
        return certain.diagonal(), counted.sum(dim=1), certain.sum(dim=0)


def checked(
    prediction: Tensor | np.ndarray, truth: Tensor | np.ndarray, C: int, name: str
) -> tuple[Tensor, Tensor]:
    """Checks prediction and truth; returns both as int64 on the device of the truth.

    Raises:
        InputError: shapes differ, or a value is not 0…C−1 or 255.
    """
    if tuple(prediction.shape) != tuple(truth.shape):
        raise InputError(
            f"{name}: prediction {tuple(prediction.shape)} and truth {tuple(truth.shape)} "
            "differ in shape; resize the prediction to the truth"
        )
    truth = _labels(truth, C, f"{name}: truth")
    return _labels(prediction, C, f"{name}: prediction").to(truth.device), truth


def _labels(values: Tensor | np.ndarray, C: int, what: str) -> Tensor:
    """Converts labels to int64; raises InputError unless all are 0…C−1 or 255."""
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(np.require(values, requirements=["C", "W"]))
    if values.is_floating_point() or values.is_complex():
        raise InputError(f"{what}: expected integer labels, got {values.dtype}; take the argmax")
    values = values.long()
    bad = values[((values < 0) | (values >= C)) & (values != IGNORE)]
    if len(bad):
        raise InputError(
            f"{what}: expected labels 0 to {C - 1}, or {IGNORE}, got {int(bad[0])}; "
            "check the number of classes and that the file is a mask"
        )
    return values
