"""What is measured of a trained network, and how."""

from dataclasses import dataclass, field
from typing import Literal

from oversmoothing.errors import InputError
from oversmoothing.tasks.wsss.crf import CRF


@dataclass(frozen=True)
class Evaluation:
    """What is measured, and how.

    Args:
        splits: ``train``, ``val``, in order.
        size: side that images are squashed to for CAMs, pseudo labels and ``seg``.
        background: CAMs at most this are background.
        ms_splits: those of them for multi-scale and CRF, which takes seconds an image.
        ms_scales: of multi-scale segmentation (``seg_ms``); empty: none.
        ms_size: side of its scale 1; None: the image's own size.
        fusion: of scales and mirror images, see ``segment.py``.
        crf: dense CRF on the multi-scale probabilities (``seg_crf``); None: none.
        limit: measure on this many images, evenly spaced; None: on all.
        ms_limit: the same for multi-scale and CRF.
        batch: squashed images at once.
        workers: processes that read images, and that run the CRF.

    Raises:
        InputError: an unknown split, or a size or count below 1.
    """

    splits: list[Literal["train", "val"]] = field(default_factory=lambda: ["val"])
    size: int = 448
    background: float = 0.5
    ms_splits: list[Literal["train", "val"]] = field(default_factory=lambda: ["val"])
    ms_scales: list[float] = field(default_factory=lambda: [1.0, 1.25, 1.5])
    ms_size: int | None = None
    fusion: Literal["voc", "coco"] = "voc"
    crf: CRF | None = field(default_factory=CRF)
    limit: int | None = None
    ms_limit: int | None = None
    batch: int = 8
    workers: int = 2

    def __post_init__(self) -> None:
        for key in ("size", "batch", "ms_size", "limit", "ms_limit"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise InputError(f"task.evaluation.{key}: expected 1 or more, got {value}")
        if self.ms_scales and min(self.ms_scales) <= 0:
            raise InputError(f"task.evaluation.ms_scales: expected above 0, got {self.ms_scales}")
