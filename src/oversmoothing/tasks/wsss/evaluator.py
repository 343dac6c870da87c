"""mIoU of every stage: CAM, auxiliary CAM, pseudo label, segmentation; multi-scale; dense CRF.

The stages and their settings follow ToCo: CAMs, pseudo labels and single-scale segmentation at
images squashed to a square, as in its validation during training; multi-scale segmentation and CRF
as in its inference scripts. Labels are compared at the mask's own size.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing import distributed
from oversmoothing.data.images.voc import ImageSet
from oversmoothing.data.loading import evaluation_items
from oversmoothing.metrics.segmentation import Confusion
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.wsss.cam import multi_scale_cams, present_classes
from oversmoothing.tasks.wsss.conditions import conditions
from oversmoothing.tasks.wsss.crf_parallel import crf_labels
from oversmoothing.tasks.wsss.evaluation import Evaluation
from oversmoothing.tasks.wsss.network import Network
from oversmoothing.tasks.wsss.objective import Method
from oversmoothing.tasks.wsss.pseudo import pseudo_labels, thresholded
from oversmoothing.tasks.wsss.segment import multi_scale_probabilities

Item = dict[str, Any]


class Evaluator:
    """Measures a network on a split.

    Args:
        network: to evaluate.
        data: images and masks.
        method: whose CAM scales and pseudo-label constants are used, and which stages exist.
        evaluation: what to measure.
        device: where the network is.
        recorder: shows progress.
    """

    def __init__(
        self,
        network: Network,
        data: ImageSet,
        method: Method,
        evaluation: Evaluation,
        device: torch.device,
        recorder: Recorder,
    ) -> None:
        self.network, self.data, self.method, self.evaluation = network, data, method, evaluation
        self.device, self.recorder, self.par = device, recorder, method.par().to(device)
        self.labels = ("background", *data.classes)

    def split(self, split: str) -> dict[str, Any]:
        """mIoU and IoU per class of every stage, in percent, keys ``<split>_<stage>_miou``."""
        self.network.eval()
        counts = self._squashed_stages(split)
        ev = self.evaluation
        if self.method.segments and ev.ms_scales and split in ev.ms_splits:
            counts |= self._multi_scale(split)
        results: dict[str, Any] = {}
        for stage, confusion in counts.items():
            confusion.all_reduce()
            results[f"{split}_{stage}_miou"] = confusion.miou()
            results[f"{split}_{stage}_iou"] = dict(zip(self.labels, confusion.iou()))
        if "pseudo" in counts:
            results[f"{split}_pseudo_coverage"] = counts["pseudo"].decided()
        return results

    def ids(self, split: str, multi_scale: bool = False) -> list[str]:
        """The images of a split that are measured, by all processes."""
        ev, every = self.evaluation, list(getattr(self.data, split))
        limits = (ev.limit, ev.ms_limit if multi_scale else None, len(every))
        number = min(limit for limit in limits if limit)
        return [every[i * len(every) // number] for i in range(number)]

    def _items(self, split: str, doing: str, multi_scale: bool = False) -> Iterator[Item]:
        """This process's share of the images, on its device, with a progress bar."""
        mine = self.ids(split, multi_scale)[distributed.rank() :: distributed.world()]
        with self.recorder.progress(len(mine), f"{split}: {doing}") as bar:
            for item in evaluation_items(self.data, mine, self.evaluation.workers):
                yield item | {"image": item["image"].to(self.device).float() / 255}
                bar.update(1)

    def _squashed_stages(self, split: str) -> dict[str, Confusion]:
        counts = {stage: Confusion(len(self.labels), unsure) for stage, unsure in self._stages()}
        items = self._items(split, "CAM")
        while several := list(islice(items, self.evaluation.batch)):
            for stage, found in self._predict(several).items():
                for item, labels in zip(several, found):
                    counts[stage].update(labels.cpu(), item["mask"], item["name"])
        return counts

    def _stages(self) -> list[tuple[str, str]]:
        """Stages at squashed images, and what an unsure pixel is; also of a process without any."""
        exists = {"aux_cam": self.method.aux_weight, "seg": self.method.segments}
        stages = [s for s in ("cam", "aux_cam", "pseudo", "seg") if exists.get(s, True)]
        return [(stage, "drop" if stage == "pseudo" else "wrong") for stage in stages]

    @torch.no_grad()
    def _predict(self, items: list[Item]) -> dict[str, list[Tensor]]:
        """Stage -> labels of every image at its own size."""
        images = squashed(items, self.evaluation.size)
        present = present_classes(torch.stack([item["label"] for item in items]).to(self.device))
        last, aux = multi_scale_cams(self.network, images, present, self.method.cam_scales)
        sizes = [item["image"].shape[-2:] for item in items]
        at_own_size = partial(self._thresholded, present=present, sizes=sizes)
        stages = {"cam": at_own_size(last)}
        if self.method.aux_weight:
            stages["aux_cam"] = at_own_size(aux)
        side = self.evaluation.size
        box = torch.tensor([0, side, 0, side], device=self.device).expand(len(items), 4)
        scores = (self.method.high, self.method.low)
        pseudo = pseudo_labels(last, present, images, box, self.par, *scores)
        stages["pseudo"] = [_resized(p, s) for p, s in zip(pseudo, sizes)]
        if self.method.segments:
            logits = self.network.segment(images).float()
            stages["seg"] = [
                F.interpolate(x[None], s, mode="bilinear")[0].argmax(0)
                for x, s in zip(logits, sizes)
            ]
        return stages

    def _thresholded(self, cams: Tensor, present: Any, sizes: list) -> list[Tensor]:
        found = []
        for i, size in enumerate(sizes):
            cam = F.interpolate(cams[i : i + 1], size, mode="bilinear")
            own = type(present)(*(part[i : i + 1] for part in present))
            found.append(thresholded(cam, own, self.evaluation.background)[0])
        return found

    def _multi_scale(self, split: str) -> dict[str, Confusion]:
        counts = {"seg_ms": Confusion(len(self.labels))}
        masks: dict[str, Tensor] = {}
        jobs = self._probabilities(split, counts["seg_ms"], masks)
        if self.evaluation.crf is None:
            for _ in jobs:
                pass
            return counts
        counts["seg_crf"] = Confusion(len(self.labels))
        mine = len(self.ids(split, multi_scale=True)[distributed.rank() :: distributed.world()])
        crf, processes = self.evaluation.crf, self.evaluation.workers
        for name, labels in crf_labels(jobs, crf, processes, f"{split}: CRF", mine):
            counts["seg_crf"].update(labels, masks.pop(name), name)
        return counts

    def _probabilities(
        self, split: str, counts: Confusion, masks: dict[str, Tensor]
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Jobs for the CRF, counted without it on the way."""
        ev = self.evaluation
        for item in self._items(split, "multi-scale", multi_scale=True):
            image, mask, name = item["image"], item["mask"], item["name"]
            found = multi_scale_probabilities(
                self.network, image, ev.ms_scales, ev.ms_size, ev.fusion
            )
            counts.update(found.argmax(0).cpu(), mask, name)
            masks[name] = mask
            picture = (image * 255).round().byte().permute(1, 2, 0).cpu().numpy()
            yield name, picture, found.cpu().numpy()

    def conditions(self, split: str) -> dict[str, str]:
        """Stage -> how its numbers were measured, in words."""
        few, images = (
            f"{len(self.ids(split, ms))} images of {self.data.name} {split}" for ms in (True, False)
        )
        return conditions(self.method, self.evaluation, images, few)


def squashed(items: list[Item], side: int) -> Tensor:
    """Images of any size as one batch (B, 3, side, side)."""
    resized = [F.interpolate(i["image"][None], (side, side), mode="bilinear") for i in items]
    return torch.cat(resized)


def _resized(labels: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(labels[None, None].float(), size, mode="nearest")[0, 0].long()
