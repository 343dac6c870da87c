"""Settings of the evaluation of a segmentation network."""

from dataclasses import dataclass, field
from typing import Literal

from oversmoothing.checks import at_least, require, scales


@dataclass(frozen=True)
class Evaluation:
    """Settings of an ``Evaluator``.

    Args:
        splits: splits to measure, among ``train`` and ``val``.
        ms_scales: scales of multi-scale segmentation (``seg_ms``), by default EANet's; empty: it is
            not measured.
        flip: whether each of these scales is also used with the mirror image.
        size: longer side of the image at scale 1; None: the image's own size.
        limit: number of images, evenly spaced; None: all.
        ms_limit: number of images for multi-scale, which takes about 20 times as long; None: as
            ``limit``.
        em_iterations: numbers T of EM iterations for further single-scale measurements
            (``seg_t<T>``); they may differ from T in training (HEMNet, Table 2). Other aggregators
            ignore them.
        workers: number of processes that read images; None: one for each core.

    Raises:
        InputError: there is no split, or a size, scale or count is out of range.
    """

    splits: list[Literal["train", "val"]] = field(default_factory=lambda: ["val"])
    ms_scales: list[float] = field(default_factory=lambda: [0.5, 0.75, 1.0, 1.25, 1.5, 1.75])
    flip: bool = True
    size: int | None = None
    limit: int | None = None
    ms_limit: int | None = None
    em_iterations: list[int] = field(default_factory=list)
    workers: int | None = None

    def __post_init__(self) -> None:
        fewest = min(self.em_iterations, default=1)
        require(
            "task.evaluation",
            splits=("none", len(self.splits) > 0, "train, val or both"),
            **at_least(1, size=self.size, limit=self.limit, ms_limit=self.ms_limit),
            **at_least(0, workers=self.workers),
            em_iterations=(self.em_iterations, fewest >= 1, "1 or more"),
            **scales(ms_scales=self.ms_scales),
        )
