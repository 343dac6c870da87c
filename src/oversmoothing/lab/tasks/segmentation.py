"""Supervised semantic segmentation: masks in, masks out."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.em import EM
from oversmoothing.checks import at_least, require, scales
from oversmoothing.lab.backbones.cnn import CNN, synchronised
from oversmoothing.lab.backbones.vit import TokenStream
from oversmoothing.lab.data.augment import JointAugment, masked_crop
from oversmoothing.lab.data.image_set import IGNORE, ImageSet, to_array, to_float
from oversmoothing.lab.data.loading import evenly_spaced, train_batches
from oversmoothing.lab.drawing.leave import leave
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import (
    Job,
    Labels,
    Parts,
    Result,
    Task,
    require_kind,
    require_patches,
)
from oversmoothing.lab.tasks.overlap import Confusion, upsampled
from oversmoothing.lab.tasks.segmentation_network import Segmenter, fitting, multi_scale
from oversmoothing.lab.tasks.splits import SplitEvaluator, listed, miou_of_one_label
from oversmoothing.lab.training.loop import BaseObjective, TrainingLoop
from oversmoothing.lab.training.recipes import Recipe


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


@dataclass(frozen=True)
class Segmentation(Task):
    """Trains a CNN or a ViT with a head of two convolutions.

    Args:
        augment: makes training crops.
        evaluation: what is measured.
        head_dim: channels before the classifier.
        dropout: before the classifier.
        aux_weight: of an auxiliary head's loss; 0: no such head.
    """

    kinds: ClassVar[dict[str, tuple[Any, str]]] = {
        "data": (
            (ImageSet, Labels),
            "has no masks, which task segmentation needs; choose data=voc, voc_subset, context, "
            "coco_stuff or scenes",
        ),
        "trainer": (Recipe, "choose trainer=emanet"),
    }
    augment: JointAugment
    evaluation: Evaluation
    head_dim: int = 256
    dropout: float = 0.1
    aux_weight: float = 0.0

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> Segmenter:
        """Builds the network; batch norms are synchronised if processes share batches."""
        require("task", **at_least(0, aux_weight=self.aux_weight))
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        host = parts.backbone(aggregators=parts.aggregators)
        require_kind("backbone", host, (TokenStream, CNN), "choose backbone=resnet101s or deit_ti")
        head = (len(parts.data.label_names), self.head_dim, self.dropout, self.aux_weight > 0)
        network = synchronised(Segmenter(host, *head)).to(device)
        return network.to(memory_format=torch.channels_last)  # a fifth faster on a CPU

    def check(self, network: Segmenter, parts: Parts) -> None:
        """Refuses crops that are not multiples of a ViT's patch; warns if they misfit a CNN."""
        backbone, crop = network.backbone, self.augment.crop
        require_patches(backbone, {"augment.crop": crop})
        if not network.patches and (fit := fitting(backbone, crop)) != crop:
            warnings.warn(
                f"task.augment.crop={crop}: features do not lie on the pixels that they are "
                f"upsampled to; {fit}, a multiple of the output stride plus 1, fits",
                stacklevel=2,
            )
        if self.evaluation.em_iterations and not any(isinstance(m, EM) for m in network.modules()):
            warnings.warn(
                "task.evaluation.em_iterations: nothing to measure; only aggregator=em, hem and "
                "em_gradient have iterations",
                stacklevel=2,
            )

    def chance(self, parts: Parts, seed: int) -> dict[str, float]:
        split = self.evaluation.splits[0]
        return {f"{split}_seg_miou": miou_of_one_label(parts.data, self.evaluation, split)}

    def run(self, network: Segmenter, job: Job) -> dict[int, Result]:
        """Trains and evaluates one network.

        Returns:
            ``<split>_seg_miou``, ``_seg_iou``, ``_seg_ms_miou``, ``_seg_ms_iou`` in percent, their
            ``conditions``, and the origin of the ``weights``.

        Raises:
            InputError: a mask is missing or has another size than its image.
        """
        [seed], data = job.seeds, job.parts.data
        trainer = job.parts.trainer.over(len(data.train))
        own = (job.recorder, job.device)
        data.require_masks("train", *self.evaluation.splits)
        sample = partial(masked_crop, data, self.augment)
        loader = partial(train_batches, data, sample, seed=seed, workers=trainer.workers)
        evaluator = Evaluator(network, data, self.evaluation, job.device, job.recorder)
        for split in self.evaluation.splits:
            data.require_sizes(evaluator.ids(split))
        objective = PixelCrossEntropy(self.aux_weight, aligned=not network.patches)
        with _fastest_convolutions():
            TrainingLoop(network, objective, loader, trainer, *own).fit()
        job.recorder.save_weights(network.state_dict())
        results = evaluator.measure()
        leave_pictures(evaluator, job.recorder, seed)
        return {seed: results}


@dataclass(frozen=True)
class PixelCrossEntropy(BaseObjective):
    """Sum of the cross-entropy of the labelled pixels, divided by the number of all pixels.

    As in EMANet's code, the number includes padding. A mean over labelled pixels would give small
    images more weight.

    Args:
        aux_weight: weight of the auxiliary head's loss; 0: there is no such head.
        aligned: how logits are upsampled, see ``upsampled``.
    """

    aux_weight: float
    aligned: bool = True

    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """Returns the losses of a part; summed over parts and processes they are the batch's.

        Shapes: ``image`` (b, 3, S, S), ``mask`` (b, S, S), 255 where the label is unknown.
        """
        out, mask = model(part["image"]), part["mask"]
        pixels = part["batch_size"] * mask[0].numel()
        losses = {"seg": self._summed(out.seg, mask) / pixels}
        if self.aux_weight:
            losses["aux"] = self.aux_weight * self._summed(out.aux, mask) / pixels
        return losses

    def _summed(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Sums image by image on a CPU, since the logits of one image fit into the cache."""
        images = 1 if logits.device.type == "cpu" else len(logits)
        parts = zip(logits.split(images), mask.split(images))
        return torch.stack([self._summed_at_once(*part) for part in parts]).sum()

    def _summed_at_once(self, logits: Tensor, mask: Tensor) -> Tensor:
        logits = upsampled(logits, mask.shape[-2:], self.aligned)
        each = F.cross_entropy(logits, mask, ignore_index=IGNORE, reduction="none")
        return each.sum()  # reduction="sum" is not deterministic on GPUs


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

    def more(self, counts: Mapping[str, Any]) -> dict[str, float]:
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


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Context in which cuDNN chooses the fastest convolutions once, since all crops are alike."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


NUMBER = 6  # images


def leave_pictures(evaluator: Evaluator, recorder: Recorder, seed: int) -> None:
    """Saves ``pictures-seed<seed>.png``: evenly spaced validation images, truth and mask."""

    def draw() -> dict[str, Any]:
        from oversmoothing.lab.drawing.grid import coloured, draw_grid, labels_in  # matplotlib

        rows = [_row(evaluator, id) for id in evenly_spaced(evaluator.data.val, NUMBER)]
        images, truths, masks = zip(*rows)
        columns = [("image", images), ("ground truth", list(map(coloured, truths)))]
        columns.append(("mask", list(map(coloured, masks))))
        names = evaluator.data.label_names
        return {"pictures": draw_grid(columns, labels_in(*truths, *masks), names)}

    leave(recorder, seed, draw)


@torch.no_grad()
def _row(evaluator: Evaluator, id: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    image, truth = evaluator.data.image(id), evaluator.data.mask(id)
    mask = evaluator.predict(to_float(image)).byte().cpu()
    return to_array(image), truth.numpy(), mask.numpy()


@contextmanager
def iterating(network: nn.Module, T: int | None) -> Iterator[None]:
    """Context in which a network's EM aggregators evaluate with T iterations; None: their own."""
    own = {module: module.eval_iterations for module in network.modules() if isinstance(module, EM)}
    for module in own:
        module.eval_iterations = T or module.eval_iterations
    try:
        yield
    finally:
        for module, iterations in own.items():
            module.eval_iterations = iterations
