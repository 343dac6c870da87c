"""mIoU of whole images, single-scale and multi-scale, without CRF.

Single-scale as EMANet's evaluation, multi-scale as EANet's test script: one image at a time, padded
and never cut, one confusion matrix over all images, labels compared at the mask's own size.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from oversmoothing import distributed
from oversmoothing.aggregators.em import EM, iterating
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.loading import evaluation_items
from oversmoothing.metrics.segmentation import Confusion
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.segmentation.evaluation import Evaluation
from oversmoothing.tasks.segmentation.network import Segmenter
from oversmoothing.tasks.segmentation.whole import multi_scale


class Evaluator:
    """Measures a network on a split.

    Args:
        network: to evaluate.
        data: images and masks.
        evaluation: what to measure.
        device: where the network is.
        recorder: shows progress.
    """

    def __init__(
        self,
        network: Segmenter,
        data: ImageSet,
        evaluation: Evaluation,
        device: torch.device,
        recorder: Recorder,
    ) -> None:
        self.network, self.data, self.evaluation = network, data, evaluation
        self.device, self.recorder = device, recorder

    def split(self, split: str) -> dict[str, Any]:
        """Of both stages mIoU and IoU per class, in percent, keys ``<split>_<stage>_miou``.

        Also ``<split>_seg_accuracy``: percent of the labelled pixels that are right.

        Raises:
            InputError: a mask is missing, or a file is damaged.
        """
        self.data.require_masks(split)
        self.network.eval()
        counts = self._count(split)
        results: dict[str, Any] = {}
        for stage, confusion in counts.items():
            confusion.all_reduce()
            results[f"{split}_{stage}_miou"] = confusion.miou()
            results[f"{split}_{stage}_iou"] = dict(zip(self.data.label_names, confusion.iou()))
        results[f"{split}_seg_accuracy"] = _accuracy(counts["seg"])
        return results

    def predict(self, image: Tensor, multi_scaled: bool = False, T: int | None = None) -> Tensor:
        """Labels of an image.

        Args:
            T: iterations of EM aggregators; None: their own.

        Shapes: (3, H, W) in [0, 1], on any device -> (H, W), int64.
        """
        ev = self.evaluation
        scales, flip = (ev.ms_scales, ev.flip) if multi_scaled else ([1.0], False)
        with iterating(self.network, T):
            logits = multi_scale(self.network, image.to(self.device), scales, flip, ev.size)
        return logits.argmax(0)

    def ids(self, split: str, multi_scaled: bool = False) -> list[str]:
        """The images of a split that are measured, by all processes."""
        ev, every = self.evaluation, list(getattr(self.data, split))
        limits = (ev.limit, ev.ms_limit if multi_scaled else None, len(every))
        number = min(limit for limit in limits if limit is not None)
        return [every[i * len(every) // number] for i in range(number)]

    def _count(self, split: str) -> dict[str, Confusion]:
        """Stage -> this process's part of the pixels; also of a process without any image."""
        stages = self._stages()
        measured = {stage: set(self.ids(split, scaled)) for stage, (scaled, _) in stages.items()}
        counts = {stage: Confusion(len(self.data.label_names)) for stage in stages}
        every = [id for id in getattr(self.data, split) if any(id in m for m in measured.values())]
        for item in self._items(every, split):
            image = item["image"].to(self.device).float() / 255
            for stage, how in stages.items():
                if item["name"] in measured[stage]:
                    labels = self.predict(image, *how).cpu()
                    counts[stage].update(labels, item["mask"], item["name"])
        return counts

    def _stages(self) -> dict[str, tuple[bool, int | None]]:
        """Stage -> whether it is multi-scale, and T of EM aggregators where it is not their own."""
        ev = self.evaluation
        stages: dict[str, tuple[bool, int | None]] = {"seg": (False, None)}
        stages |= {"seg_ms": (True, None)} if ev.ms_scales else {}
        if any(isinstance(module, EM) for module in self.network.modules()):
            stages |= {f"seg_t{T}": (False, T) for T in ev.em_iterations}
        return stages

    def _items(self, ids: list[str], split: str) -> Iterator[dict[str, Any]]:
        """This process's share of the images, with a progress bar."""
        mine = ids[distributed.rank() :: distributed.world()]
        with self.recorder.progress(len(mine), f"{split}: segmentation") as bar:
            for item in evaluation_items(self.data, mine, self.evaluation.workers):
                yield item
                bar.update(1)

    def conditions(self, split: str) -> dict[str, str]:
        """Stage -> how its numbers were measured, in words."""
        ev = self.evaluation
        size = f"longer side scaled to {ev.size}" if ev.size else "own size"
        few, images = (f"{len(self.ids(split, ms))} images" for ms in (True, False))
        where = f"of {self.data.name} {split}, {len(self.data.label_names)} labels, whole, {size}"
        found = {"seg": f"{images} {where}, single scale, no flip, no CRF"}
        if ev.ms_scales:
            scales = ", ".join(f"{scale:g}" for scale in ev.ms_scales)
            flips = "with flips" if ev.flip else "no flip"
            found["seg_ms"] = f"{few} {where}, scales {scales} {flips}, logits summed, no CRF"
        own = {stage: T for stage, (_, T) in self._stages().items() if T}
        return found | {stage: f"{found['seg']}, T = {T}" for stage, T in own.items()}


def _accuracy(counts: Confusion) -> float:
    """Percent of the labelled pixels; NaN without any."""
    total = int(counts.matrix.sum())
    return 100 * int(counts.matrix.diagonal().sum()) / total if total else float("nan")
