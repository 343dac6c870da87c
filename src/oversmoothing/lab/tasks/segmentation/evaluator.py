"""mIoU of whole images, single-scale and multi-scale, without CRF.

Single-scale follows EMANet's evaluation, multi-scale EANet's test script: one image at a time,
padded and never cut, one confusion matrix over all images, labels compared at the mask's own size.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from oversmoothing.aggregators.em import EM, iterating
from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.tasks.segmentation.whole import multi_scale
from oversmoothing.lab.tasks.splits import SplitEvaluator, listed
from oversmoothing.metrics.segmentation import Confusion


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
