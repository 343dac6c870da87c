"""mIoU of every stage: CAM, auxiliary CAM, pseudo label, segmentation; multi-scale; dense CRF.

Stages and settings follow ToCo. CAMs, pseudo labels and single-scale segmentation are computed on
images squashed to a square, as in ToCo's validation during training. Multi-scale segmentation and
CRF follow its inference scripts. Labels are compared at the mask's own size.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.tasks import layers
from oversmoothing.lab.tasks.overlap import BoundaryIoU, Confusion, Overlap, ThresholdCurve
from oversmoothing.lab.tasks.splits import SplitEvaluator, listed
from oversmoothing.lab.tasks.wsss.crf import dense_crf
from oversmoothing.lab.tasks.wsss.labels import Labeller, resized, resized_labels, strongest
from oversmoothing.lab.tasks.wsss.network import Present, present_classes, segmented
from oversmoothing.lab.tasks.wsss.settings import Method

Item = dict[str, Any]
TOKEN_IMAGES = 64  # for token similarity


@dataclass(eq=False)
class Evaluator(SplitEvaluator):
    """Measures a ``Network`` with the settings of an ``Evaluation``.

    Args:
        method: CAM scales and constants of pseudo labels; its losses decide which stages exist.
        others: see ``SplitEvaluator``.
    """

    method: Method

    def __post_init__(self) -> None:
        self.method = self.evaluation.shown(self.method)
        self.curves: dict[str, ThresholdCurve] = {}
        self.labeller = Labeller(self.network, self.method)

    def split(self, split: str) -> dict[str, Any]:
        """Measures one split; adds the curves of the CAMs' mIoU over background thresholds.

        Raises:
            InputError: a mask or an image-level label is missing, or a file is damaged.
        """
        self.data.require_labels(self.ids(split))
        return super().split(split) | self._curves(split)

    def during_training(self) -> dict[str, Any]:
        """Measures the validation images; leaves out the numbers of single classes."""
        return {k: v for k, v in self.split("val").items() if not k.endswith("_iou")}

    def common(self) -> set[int] | None:
        """Returns background and the labels with enough training images, by ``common``."""
        if not self.evaluation.common:
            return None
        images = Counter(label for id in self.data.train for label in self.data.present[id])
        return {0} | {label for label, n in images.items() if n >= self.evaluation.common}

    def _curves(self, split: str) -> dict[str, Any]:
        """Returns the mIoU of the CAMs by threshold, the best mIoU, and its threshold."""
        results: dict[str, Any] = {}
        for stage, curve in self.curves.items():
            curve.all_reduce()
            miou, name = curve.miou(), f"{split}_{stage}"
            results[f"{name}_curve"] = {f"{t:g}": value for t, value in miou.items()}
            best = max(miou, key=miou.__getitem__)
            results |= {f"{name}_best_background": best, f"{name}_best_miou": miou[best]}
            if (common := self.common()) is not None:
                values = (curve.at(place).miou(common) for place in range(len(miou)))
                results[f"{name}_best_common_miou"] = max(values)
        return results

    def counts(self, split: str) -> dict[str, Overlap]:
        """Counts this process's share of the pixels: squashed stages, then multi-scale ones."""
        counts = self._squashed_stages(split)
        if self.evaluation.multi_scale(self.method, split):
            counts |= self._multi_scale(split)
        return counts

    def more(self, counts: Mapping[str, Any]) -> dict[str, float]:
        """Returns the percentage of pixels that pseudo labels decide."""
        return {"pseudo_coverage": counts["pseudo"].decided()}

    @torch.no_grad()
    def layers(self) -> dict[str, list[float]]:
        """Measures token similarity after every block, on the first validation images, squashed.

        It is measured on the patch tokens of the residual stream, separately for each image.

        Returns:
            ``cosine``, ``effective_rank`` and ``token_variance``, each with one mean over images
            per block.
        """
        backbone = self.network.backbone
        training = backbone.training
        backbone.eval()
        images = (to_float(self.data.image(id)) for id in self.data.val[:TOKEN_IMAGES])
        found = layers.measured(
            [x[:, backbone.prefix :] for x in backbone.layers(self._squashed([image]))]
            for image in images
        )
        backbone.train(training)
        return found

    def _squashed_stages(self, split: str) -> dict[str, Overlap]:
        counts: dict[str, Overlap] = {s: self.confusion(how) for s, how in self._stages().items()}
        C, thresholds = len(self.data.label_names), self.evaluation.backgrounds
        cams = [stage for stage in counts if stage.endswith("cam") and thresholds]
        self.curves = {stage: ThresholdCurve(C, thresholds) for stage in cams}
        counts |= {_boundary(s): BoundaryIoU(C, how) for s, how in self._bounded().items()}
        items = self.items(self.share(self.ids(split)), f"{split}: CAM")
        while several := list(islice(items, self.evaluation.batch)):
            for stage, found in self._predict(several).items():
                measures = [counts[key] for key in (stage, _boundary(stage)) if key in counts]
                for item, labels in zip(several, found):
                    for measure in measures:
                        measure.update(labels.cpu(), item["mask"], item["name"])
        return counts

    def _stages(self) -> dict[str, str]:
        """Maps the stages on squashed images to the way an unsure pixel counts."""
        segments = self.method.segments
        exists = {"aux_cam": self.method.aux_weight, "seg": segments}
        exists["seg_known"] = segments and self.evaluation.known
        every = ("cam", "aux_cam", "pseudo", "seg", "seg_known")
        stages = [stage for stage in every if exists.get(stage, True)]
        return {stage: "drop" if stage == "pseudo" else "wrong" for stage in stages}

    def _bounded(self) -> dict[str, str]:
        """Maps the stages with a boundary IoU to the way an unsure pixel counts."""
        stages = self._stages() if self.evaluation.boundary else {}
        bounded = ("cam", "pseudo", "seg")
        return {stage: unsure for stage, unsure in stages.items() if stage in bounded}

    def _squashed(self, images: Sequence[Tensor]) -> Tensor:
        """Squashes images (3, H, W) of any size to one batch (B, 3, side, side)."""
        size = (self.evaluation.size, self.evaluation.size)
        return torch.cat([resized(image[None], size) for image in images]).to(self.device)

    @torch.no_grad()
    def _predict(self, items: list[Item]) -> dict[str, list[Tensor]]:
        """Maps every stage to the labels of every image, at the image's own size."""
        images = self._squashed([to_float(item["image"].to(self.device)) for item in items])
        label = torch.stack([item["label"] for item in items]).to(self.device)
        present = present_classes(label)
        absent = F.pad(label == 0, (1, 0))[..., None, None]  # background is always present
        last, aux = self.labeller.cams(images, present)
        cams = {"cam": last, "aux_cam": aux}
        pseudo = self.labeller.pseudo(last, present, images)
        logits = self.network.segment(images).float() if self.method.segments else None

        def labels(stage: str, i: int, truth: Tensor) -> Tensor:
            one = slice(i, i + 1)
            if stage in cams:
                return self._by_cam(stage, cams[stage], present, one, truth)
            if stage == "pseudo":
                return resized_labels(pseudo[one], truth.shape)
            scores = resized(logits[one], truth.shape)
            if stage == "seg_known":
                scores = scores.masked_fill(absent[one], -torch.inf)
            return scores.max(1).indices

        return {
            stage: [labels(stage, i, item["mask"])[0] for i, item in enumerate(items)]
            for stage in self._stages()
        }

    def _by_cam(
        self, stage: str, cams: Tensor, present: Present, one: slice, truth: Tensor
    ) -> Tensor:
        """Returns labels at the evaluation's threshold; counts other thresholds in the curve."""
        scores, classes = strongest(resized(cams[one], truth.shape), present.part(one))
        if stage in self.curves:
            self.curves[stage].update(scores[0], classes[0], truth)
        return torch.where(scores > self.evaluation.background, classes, 0)

    def _multi_scale(self, split: str) -> dict[str, Confusion]:
        crf, ids = self.evaluation.crf, self.share(self.ids(split, multi_scale=True))
        counts = {stage: self.confusion() for stage in self._multi_scale_stages()}
        for item in self.items(ids, f"{split}: multi-scale"):
            found = {"seg_ms": segmented(self.network, item["image"], self.evaluation)}
            if crf:
                found["seg_crf"] = dense_crf(item["image"], found["seg_ms"], crf)
            for stage, probabilities in found.items():
                labels = probabilities.max(0).indices.cpu()
                counts[stage].update(labels, item["mask"], item["name"])
        return counts

    def _multi_scale_stages(self) -> list[str]:
        return ["seg_ms", "seg_crf"] if self.evaluation.crf else ["seg_ms"]

    def conditions(self, split: str) -> dict[str, str]:
        """Describes split, scales, thresholds and CRF of every stage that is measured."""
        method, ev = self.method, self.evaluation
        few, images = (
            f"{len(self.ids(split, ms))} images of {self.data.name} {split}" for ms in (True, False)
        )
        square = f"{images}, squashed to {ev.size}×{ev.size}"
        cam = f"{square}, scales {listed(method.cam_scales)} with flips, classes by image label"
        cam_alone = f"{cam}, background ≤ {ev.background:g}, no PAR, no CRF"
        ms_size = f"squashed to {ev.ms_size}×{ev.ms_size}" if ev.ms_size else "own size"
        ms = f"{few}, {ms_size}, scales {listed(ev.ms_scales)} with flips, fused as {ev.fusion}"
        scores = f"background {method.high:g} and {method.low:g}"
        found = {
            "cam": cam_alone,
            "aux_cam": cam_alone,
            "pseudo": f"{cam}, PAR, {scores}, unsure dropped",
            "seg": f"{square}, single scale, no CRF",
            "seg_known": f"{square}, single scale, no CRF, classes by image label",
            "seg_ms": f"{ms}, no CRF",
            "seg_crf": f"{ms}, {ev.crf}",
        }
        stages = [*self._stages()]
        if ev.multi_scale(method, split):
            stages += self._multi_scale_stages()
        band = "boundary IoU, 2 % of the diagonal"
        bounded = {_boundary(stage): f"{found[stage]}, {band}" for stage in self._bounded()}
        return {stage: found[stage] for stage in stages} | bounded


def _boundary(stage: str) -> str:
    """Returns the name of a stage's boundary IoU in the results."""
    return f"{stage}_boundary"
