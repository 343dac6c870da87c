"""Intersection over union (IoU): from a confusion matrix, by background threshold, along contours.

The boundary IoU is that of bands along the contours (Cheng et al., CVPR 2021,
https://arxiv.org/abs/2103.16562). The IoU of a large object hardly depends on its contour; the
boundary IoU depends only on pixels near it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from math import hypot
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.distributed import gathered
from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import IGNORE

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


class ThresholdCurve:
    """Confusion matrices at several background thresholds, counted in one pass over the pixels.

    At a threshold t, a pixel has the class of its highest score if this score exceeds t, else it is
    background (label 0).

    Args:
        num_classes: C, background included.
        thresholds: in any order; one that is repeated counts once.

    Attributes:
        counts: (C, C, T + 1) int64 on the CPU: truth, class of the highest score, number of
            thresholds below that score.
        thresholds: (T,), ascending.
    """

    def __init__(self, num_classes: int, thresholds: Sequence[float]) -> None:
        self.thresholds = torch.tensor(sorted(set(thresholds)))
        C, T = num_classes, len(self.thresholds)
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


def upsampled(logits: Tensor, size: tuple[int, int], aligned: bool = True) -> Tensor:
    """Upsamples logits to ``size``, bilinearly.

    On a GPU by two matrix products: torch's backward pass takes 3 ms for 4 × 448² there, and adds
    in an order that varies.

    Args:
        logits: (B, classes, h, w).
        size: height and width of the result.
        aligned: if true, the first and last logits lie on the first and last pixels, as in EMANet;
            if false, logits lie in the centres of their patches, as in a ViT.
    """
    if not logits.is_cuda:
        return F.interpolate(logits.float(), size, mode="bilinear", align_corners=aligned)
    sides = zip(logits.shape[-2:], size)
    rows, columns = (_weights(n, m, aligned, logits.device) for n, m in sides)
    with torch.autocast("cuda", enabled=False):
        return rows @ (logits.float() @ columns.mT)


def _weights(n: int, m: int, aligned: bool, device: torch.device) -> Tensor:
    """Returns the weights of n numbers in m that are interpolated between them, (m, n)."""
    one_hot = torch.eye(n, device=device, dtype=torch.float32)[None]
    return F.interpolate(one_hot, m, mode="linear", align_corners=aligned)[0].mT


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
