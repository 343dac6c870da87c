"""Weakly supervised segmentation: image-level labels in, pixel labels out, in a single stage."""

import math
import warnings
from dataclasses import dataclass
from functools import partial

import torch

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.vit.tokens import TokenStream
from oversmoothing.lab.data.images.augment import Augment, labelled_crop
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
from oversmoothing.lab.tasks.wsss.adaptation import adapt
from oversmoothing.lab.tasks.wsss.crf import CRF, load_pydensecrf
from oversmoothing.lab.tasks.wsss.evaluation import Evaluation
from oversmoothing.lab.tasks.wsss.evaluator import Evaluator
from oversmoothing.lab.tasks.wsss.look import Viewer
from oversmoothing.lab.tasks.wsss.method import Method
from oversmoothing.lab.tasks.wsss.network import Network
from oversmoothing.lab.tasks.wsss.objective import Objective
from oversmoothing.lab.training.loop import Checks, TrainingLoop
from oversmoothing.lab.training.recipe import Recipe


@dataclass(frozen=True)
class WSSS(Task):
    """Trains a ViT, two classifiers and a decoder from image-level labels.

    Args:
        method: losses and pseudo labels.
        augment: makes training crops.
        evaluation: what is measured.
        adaptation: number of iterations, before the training, that adapt the pretrained weights to
            the aggregator without labels; 0: none.
        aux_block: block whose output feeds the auxiliary classifier.
    """

    method: Method
    augment: Augment
    evaluation: Evaluation
    adaptation: int = 0
    aux_block: int = -3

    @classmethod
    def accept(cls, parts: Parts) -> None:
        if not getattr(parts.data, "background", False):
            raise InputError(
                f"data {parts.data.name}: has no background, which CAMs need; choose VOC or COCO"
            )
        require_trainer(parts.trainer, Recipe, "wsss", "trainer=toco")

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> Network:
        """Builds the network; the seed draws all weights that are not pretrained.

        Raises:
            InputError: the data have no background, a block does not exist, or backbone or
                aggregators refuse their options.
        """
        [seed] = seeds
        torch.manual_seed(seed)
        self.accept(parts)
        vit = parts.backbone(aggregators=parts.aggregators)
        require_backbone(vit, TokenStream, "choose backbone=deit_ti or another vision transformer")
        if not -vit.depth <= self.aux_block < vit.depth:
            raise InputError(
                f"task.aux_block: expected a block 0 to {vit.depth - 1}, or -1 for the last, "
                f"got {self.aux_block}"
            )
        return Network(vit, len(parts.data.label_names) - 1, self.aux_block).to(device)

    def check(self, network: Network, parts: Parts) -> None:
        """Refuses sizes that are not multiples of the patch, and a CRF without pydensecrf."""
        if self.evaluation.crf and self.evaluation.multi_scale(self.method):
            load_pydensecrf()
        if self.adaptation < 0:
            raise InputError(
                f"task.adaptation: expected 0 or more iterations, got {self.adaptation}"
            )
        warmup = getattr(parts.trainer, "warmup", 0)
        if 0 < self.adaptation <= warmup:
            raise InputError(
                f"task.adaptation: expected 0, or more than trainer.warmup={warmup} iterations, "
                f"got {self.adaptation}"
            )
        if self.adaptation and not network.backbone.pretrained:
            raise InputError(
                "task.adaptation: the network has no pretrained weights to adapt; set it to 0, or "
                "choose backbone.weights=timm or a file"
            )
        iterations = getattr(parts.trainer, "iterations", math.inf)  # no trainer: an evaluation
        if self.method.segments and self.method.start >= iterations:
            warnings.warn(
                f"task.method.start={self.method.start}: the training has only "
                f"{iterations} iterations, so the decoder is not trained, and its "
                "mIoU is meaningless; lower it",
                stacklevel=2,
            )
        sizes = {"augment.crop": self.augment.crop, "evaluation.size": self.evaluation.size}
        require_patches(network.backbone, sizes)

    def run(self, network: Network, job: Job) -> dict[int, Result]:
        """Trains and evaluates one network.

        Returns:
            ``<split>_<stage>_miou`` and ``_iou`` for the stages cam, aux_cam, pseudo, seg, seg_ms
            and seg_crf in percent, ``conditions`` of each, ``layers_before`` and ``layers_after``
            training (token cosine and effective rank by block), the origin of the ``weights``, and
            with ``evaluation.every`` the ``history`` of the same numbers during the training.

        Raises:
            InputError: a mask or an image-level label is missing, or a mask has another size than
                its image.
        """
        from oversmoothing.lab.tasks.wsss.panels import leave_pictures  # matplotlib

        [seed], data = job.seeds, job.parts.data
        trainer = job.parts.trainer.over(len(data.train))
        own = (job.recorder, job.device)
        evaluator = Evaluator(network, data, self.evaluation, job.device, job.recorder, self.method)
        data.require_labels(data.train)
        data.require_masks(*self.evaluation.splits)
        for split in self.evaluation.splits:
            data.require_labels(evaluator.ids(split))
            data.require_sizes(evaluator.ids(split))
        before = evaluator.layers()
        sample = partial(labelled_crop, data, self.augment)
        loader = partial(train_batches, data, sample, seed=seed, workers=trainer.workers)
        if self.adaptation:
            teacher = job.parts.backbone(aggregators=[NoAggregator]).to(job.device)
            adapt(network.backbone, teacher, self.adaptation, loader, trainer, *own)
        every = self.evaluation.every
        checks = Checks(every, evaluator.during_training) if every else None
        objective = Objective(self.method, network)
        training = TrainingLoop(
            network, objective, loader, trainer, *own, before=self.adaptation, checks=checks
        )
        training.fit()
        job.recorder.save_weights(network.state_dict())
        results = evaluator.measure()
        if every:
            results["history"] = training.history
        results |= {"layers_before": before, "layers_after": evaluator.layers()}
        leave_pictures(evaluator, job.recorder, seed, results)
        return {seed: results}

    def viewer(self, network: Network, crf: bool = False, known: bool = False) -> Viewer:
        """Returns a viewer with the settings of the evaluation.

        Args:
            network: trained.
            crf: refine masks by the dense CRF of the evaluation, or by the default one if it has
                none.
            known: limit masks to the classes of the image's label.
        """
        own = (self.evaluation.crf or CRF()) if crf else None
        return Viewer(network, self.method, self.evaluation, own, known)
