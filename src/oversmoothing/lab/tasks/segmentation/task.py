"""Supervised semantic segmentation: masks in, masks out."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.em import EM
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.cnn import CNN, synchronised
from oversmoothing.lab.backbones.vit import TokenStream
from oversmoothing.lab.data.augment import JointAugment, masked_crop
from oversmoothing.lab.data.loading import train_batches
from oversmoothing.lab.tasks.base import (
    Job,
    Parts,
    Result,
    Task,
    require_backbone,
    require_patches,
    require_trainer,
)
from oversmoothing.lab.tasks.segmentation.evaluator import Evaluation, Evaluator
from oversmoothing.lab.tasks.segmentation.network import Segmenter, fitting, upsampled
from oversmoothing.lab.training.loop import Batch, TrainingLoop
from oversmoothing.lab.training.recipes import Recipe
from oversmoothing.metrics.segmentation import IGNORE


@dataclass(frozen=True)
class PixelCrossEntropy:
    """Sum of the cross-entropy of the labelled pixels, divided by the number of all pixels.

    As in EMANet's code, the number includes padding. A mean over labelled pixels would give small
    images more weight.

    Args:
        aux_weight: weight of the auxiliary head's loss; 0: there is no such head.
        aligned: how logits are upsampled, see ``upsampled``.
    """

    aux_weight: float
    aligned: bool = True

    def prepare(self, batch: Batch, step: int) -> Batch:
        """Returns the batch unchanged."""
        return batch

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

    augment: JointAugment
    evaluation: Evaluation
    head_dim: int = 256
    dropout: float = 0.1
    aux_weight: float = 0.0

    @classmethod
    def accept(cls, parts: Parts) -> None:
        if not hasattr(parts.data, "label_names"):
            raise InputError(
                f"data {parts.data.name}: has no masks, which task segmentation needs; choose "
                "data=voc, voc_subset, context, coco_stuff or scenes"
            )
        require_trainer(parts.trainer, Recipe, "segmentation", "trainer=emanet")

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> Segmenter:
        """Builds the network; the seed draws all weights that are not pretrained.

        Batch norms are synchronised if several processes share batches.

        Raises:
            InputError: a weight is below 0, or backbone, aggregators or head refuse their options.
        """
        if self.aux_weight < 0:
            raise InputError(f"task.aux_weight: expected 0 or more, got {self.aux_weight}")
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        host = parts.backbone(aggregators=parts.aggregators)
        require_backbone(host, (TokenStream, CNN), "choose backbone=resnet101s or deit_ti")
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

    def run(self, network: Segmenter, job: Job) -> dict[int, Result]:
        """Trains and evaluates one network.

        Returns:
            ``<split>_seg_miou``, ``_seg_iou``, ``_seg_ms_miou``, ``_seg_ms_iou`` in percent, their
            ``conditions``, and the origin of the ``weights``.

        Raises:
            InputError: a mask is missing or has another size than its image.
        """
        from oversmoothing.lab.tasks.segmentation.pictures import leave_pictures  # matplotlib

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


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Context in which cuDNN chooses the fastest convolutions once, since all crops are alike."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
