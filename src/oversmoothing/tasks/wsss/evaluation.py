"""Settings of the evaluation of a wsss network."""

from dataclasses import dataclass, field
from typing import Literal

from oversmoothing.data.checks import at_least, probability, require
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
        workers: number of processes that read images, and of processes that run the CRF;
            None: as many as there are cores.

    Raises:
        InputError: no split, one that is not measured, or a value out of range.
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
    workers: int | None = None

    def __post_init__(self) -> None:
        ms_splits = (self.ms_splits, {*self.ms_splits} <= {*self.splits}, f"some of {self.splits}")
        require(
            "task.evaluation",
            **at_least(1, size=self.size, batch=self.batch, ms_size=self.ms_size),
            **at_least(1, limit=self.limit, ms_limit=self.ms_limit),
            **at_least(0, workers=self.workers),
            **probability(background=self.background),
            splits=("none", len(self.splits) > 0, "train, val or both"),
            ms_splits=ms_splits,
            ms_scales=(self.ms_scales, min(self.ms_scales, default=1) > 0, "scales above 0"),
        )
