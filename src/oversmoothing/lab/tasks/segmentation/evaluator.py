"""mIoU of whole images, single-scale and multi-scale, without CRF.

Single-scale follows EMANet's evaluation, multi-scale EANet's test script: one image at a time,
padded and never cut, one confusion matrix over all images, labels compared at the mask's own size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from oversmoothing.aggregators.em import EM, iterating
from oversmoothing.checks import at_least, require, scales
from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.tasks.segmentation.network import multi_scale
from oversmoothing.lab.tasks.splits import SplitEvaluator, listed
from oversmoothing.metrics.segmentation import Confusion


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


class Evaluator(SplitEvaluator):
    """Measures a ``Segmenter`` with the settings of an ``Evaluation``; see ``SplitEvaluator``."""

    def predict(self, image: Tensor, multi_scaled: bool = False, T: int | None = None) -> Tensor:
        """Labels an image.

        Args:
            image: the image.
            multi_scaled: use the scales of the evaluation; if false, scale 1 without mirror image.
            T: iterations of EM aggregators; None: their own.

        Shapes: (3, H, W) in [0, 1], on any device -> (H, W), int64.
        """
        ev = self.evaluation
        scales, flip = (ev.ms_scales, ev.flip) if multi_scaled else ([1.0], False)
        with iterating(self.network, T):
            logits = multi_scale(self.network, image.to(self.device), scales, flip, ev.size)
        return logits.max(0).indices  # several times as fast as argmax on a CPU

    def counts(self, split: str) -> dict[str, Confusion]:
        """Counts this process's share of the pixels; reads each image once for all stages."""
        stages = self._stages()
        measured = {stage: set(self.ids(split, scaled)) for stage, (scaled, _) in stages.items()}
        counts = {stage: self.confusion() for stage in stages}
        every = [id for id in getattr(self.data, split) if any(id in m for m in measured.values())]
        for item in self.items(self.share(every), f"{split}: segmentation"):
            image = to_float(item["image"].to(self.device))
            for stage, how in stages.items():
                if item["name"] in measured[stage]:
                    labels = self.predict(image, *how).cpu()
                    counts[stage].update(labels, item["mask"], item["name"])
        return counts

    def more(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the accuracy of single-scale segmentation in percent of the labelled pixels."""
        return {"seg_accuracy": counts["seg"].accuracy()}

    def _stages(self) -> dict[str, tuple[bool, int | None]]:
        """Maps stages to whether they are multi-scale, and T of EM aggregators; None: their own."""
        ev = self.evaluation
        stages: dict[str, tuple[bool, int | None]] = {"seg": (False, None)}
        stages |= {"seg_ms": (True, None)} if ev.ms_scales else {}
        if any(isinstance(module, EM) for module in self.network.modules()):
            stages |= {f"seg_t{T}": (False, T) for T in ev.em_iterations}
        return stages

    def conditions(self, split: str) -> dict[str, str]:
        """Describes images, sizes and scales of every stage."""
        ev = self.evaluation
        size = f"longer side scaled to {ev.size}" if ev.size else "own size"
        few, images = (f"{len(self.ids(split, ms))} images" for ms in (True, False))
        where = f"of {self.data.name} {split}, {len(self.data.label_names)} labels, whole, {size}"
        found = {"seg": f"{images} {where}, single scale, no flip, no CRF"}
        if ev.ms_scales:
            flips = "with flips" if ev.flip else "no flip"
            scales = f"scales {listed(ev.ms_scales)} {flips}"
            found["seg_ms"] = f"{few} {where}, {scales}, logits summed, no CRF"
        own = {stage: T for stage, (_, T) in self._stages().items() if T}
        return found | {stage: f"{found['seg']}, T = {T}" for stage, T in own.items()}
