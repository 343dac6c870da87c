"""Boundary IoU: the IoU of bands along the contours (Cheng et al., CVPR 2021).

https://arxiv.org/abs/2103.16562. The IoU of a large object hardly depends on its contour; the
boundary IoU depends only on pixels near it.
"""

from math import hypot
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.metrics.segmentation import IGNORE, Overlap, checked


class BoundaryIoU(Overlap):
    """Counts the pixels of each class that lie at most d inside its contour.

    As in the authors' code, distances are those of d erosions by 3 × 3 pixels (chessboard), and the
    border of the image is a contour. Pixels whose truth is 255 belong to no class in either mask:
    a prediction that is right everywhere else scores 100.

    Args:
        num_classes: C, background included.
        unsure: how a prediction of 255 counts. ``wrong``: as a missed pixel of its true class.
            ``drop``: like a pixel whose truth is 255.
        width: d as a share of the image's diagonal; at least one pixel.

    Attributes:
        matrix: (3, C) int64 on the CPU: pixels of the bands that are hit, true, predicted.

    Raises:
        InputError: C not in 1…255, an unknown ``unsure``, or a width that is not above 0.
    """

    def __init__(
        self, num_classes: int, unsure: Literal["wrong", "drop"] = "wrong", width: float = 0.02
    ) -> None:
        super().__init__(num_classes, unsure)
        if not width > 0:
            raise InputError(f"width: expected a share of the diagonal above 0, got {width}")
        self.width = width
        self.matrix = torch.zeros(3, num_classes, dtype=torch.int64)

    def update(
        self, prediction: Tensor | np.ndarray, truth: Tensor | np.ndarray, name: str = "images"
    ) -> None:
        """Adds images.

        Args:
            prediction: (…, H, W) integer, 0…C−1 or 255, on any device.
            truth: same shape and values.
            name: of the image, for messages.

        Raises:
            InputError: shapes differ, or a value is not a label; the counts stay unchanged.
        """
        C = self.num_classes
        prediction, truth = checked(prediction, truth, C, name)
        H, W = truth.shape[-2:]
        dropped = truth == IGNORE
        if self.unsure == "drop":
            dropped = dropped | (prediction == IGNORE)
        masks = [x.masked_fill(dropped | (x == IGNORE), C) for x in (truth, prediction)]
        d = max(1, round(self.width * hypot(H, W)))
        true, predicted = (x.masked_fill(~near_contour(x, d), C) for x in masks)
        found = (true.masked_fill(true != predicted, C), true, predicted)
        self.matrix += torch.stack([x.flatten().bincount(minlength=C + 1)[:C] for x in found]).cpu()

    def areas(self) -> tuple[Tensor, Tensor, Tensor]:
        hit, true, predicted = self.matrix
        return hit, true, predicted


def near_contour(labels: Tensor, d: int) -> Tensor:
    """Whether another label, or the outside, is at most d pixels away (chessboard distance).

    Shapes: integer (…, H, W) of values above −1 -> bool (…, H, W).
    """
    padded = F.pad(labels.to(torch.int16), (d, d, d, d), value=-1)
    return _highest(padded, 2 * d + 1) != -_highest(-padded, 2 * d + 1)


def _highest(x: Tensor, size: int) -> Tensor:
    """Maximum over each square window, by windows that double in size.

    Shapes: (…, H, W) -> (…, H − size + 1, W − size + 1).
    """
    for dim in (-2, -1):
        covered = 1
        while covered < size:
            step = min(covered, size - covered)
            rest = x.shape[dim] - step
            x = torch.maximum(x.narrow(dim, 0, rest), x.narrow(dim, step, rest))
            covered += step
    return x
