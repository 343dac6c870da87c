"""Settings of the evaluation of a wsss network."""

from dataclasses import dataclass, field
from typing import Literal

from oversmoothing.errors import InputError
from oversmoothing.tasks.wsss.crf import CRF


@dataclass(frozen=True)
class Evaluation:
    """Settings that an ``Evaluator`` follows.

    Args:
        splits: splits to measure, of ``train`` and ``val``.
        size: side of the square that images are squashed to for CAMs, pseudo labels and ``seg``.
        background: pixels whose CAMs are at most this are background.
        ms_splits: those of ``splits`` for multi-scale and CRF, which take seconds per image.
        ms_scales: scales of multi-scale segmentation (``seg_ms``); empty: it is not measured.
        ms_size: side of the image at scale 1; None: the image's own size.
        fusion: how scales and mirror images are fused, see ``segment.py``.
        crf: dense CRF on the multi-scale probabilities (``seg_crf``); None: it is not measured.
        limit: number of images, evenly spaced; None: all.
        ms_limit: number of images for multi-scale and CRF; None: as ``limit``.
        batch: number of squashed images per forward pass.
        workers: number of processes that read images, and of processes that run the CRF.

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
