"""Image classification: a network trained on images with one class each."""

import json
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from oversmoothing import distributed
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.cnn.cnn import CNN, synchronised
from oversmoothing.lab.backbones.vit.tokens import TokenStream
from oversmoothing.lab.data.images.labelled_images import LabelledImages
from oversmoothing.lab.data.loading import train_batches
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import (
    Job,
    Parts,
    Result,
    Task,
    require_backbone,
    require_data,
    require_patches,
    require_trainer,
    weights_of,
)
from oversmoothing.lab.tasks.classification.augment import Augment, collate, labelled_image
from oversmoothing.lab.tasks.classification.evaluation import Evaluation
from oversmoothing.lab.tasks.classification.evaluator import Evaluator
from oversmoothing.lab.tasks.classification.mix import Mix
from oversmoothing.lab.tasks.classification.network import Classifier
from oversmoothing.lab.tasks.classification.objective import Objective
from oversmoothing.lab.training.loop import TrainingLoop
from oversmoothing.lab.training.recipe import Recipe

TOY = LabelledImages("toy", ("a", "b"), (), (), pil_image=None, target=None, checksum="")


@dataclass(frozen=True)
class Classification(Task):
    """Trains a backbone and a linear classifier.

    Args:
        augment: makes training images.
        mix: mixes the images of a batch.
        evaluation: what is measured, and how.
        repeats: number of consecutive repetitions of an image, each augmented anew. An epoch keeps
            its length, so it has 1/repeats of the images (repeated augmentation: Hoffer et al.,
            CVPR 2020).
        uniformity: weight of the uniformity loss of the last tokens (ContraNorm, B.2), which is
            added to the cross-entropy.
    """

    toy: ClassVar[Any] = TOY
    augment: Augment
    mix: Mix
    evaluation: Evaluation
    repeats: int = 1
    uniformity: float = 0.0

    @classmethod
    def accept(cls, parts: Parts) -> None:
        wanted = (
            "task classification needs one class per image; choose data=imagenet, imagenet100, "
            "digits or scene_crops"
        )
        require_data(parts.data, LabelledImages, wanted)
        require_trainer(parts.trainer, Recipe, "classification", "trainer=deit")

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> Classifier:
        """Builds the network; the seed draws all weights that are not pretrained.

        Batch norms are synchronised where GPUs share batches.

        Raises:
            InputError: the data have no classes, the backbone reads no images, or backbone or
                aggregators refuse their options.
        """
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        host = parts.backbone(aggregators=parts.aggregators)
        require_backbone(host, (TokenStream, CNN), "choose backbone=deit_ti, t2t_vit_7 or resnet50")
        return synchronised(Classifier(host, len(parts.data.classes))).to(device)

    def check(self, network: Classifier, parts: Parts) -> None:
        """Refuses sizes that are not multiples of the patch, and batches that cannot be mixed."""
        if self.repeats < 1:
            raise InputError(f"task.repeats: expected 1 or more, got {self.repeats}")
        if not 0 <= self.uniformity < math.inf:
            raise InputError(f"task.uniformity: expected 0 or more, got {self.uniformity}")
        share = parts.trainer.batch_size // distributed.world()
        if self.mix.mixes and share % 2:
            raise InputError(
                f"trainer.batch_size: images are mixed in pairs, and each process has {share} of "
                "them; make it even, or set task.mix.prob=0"
            )
        sizes = {"augment.size": self.augment.size, "evaluation.size": self.evaluation.size}
        require_patches(network.backbone, sizes)

    def run(self, network: Classifier, job: Job) -> dict[int, Result]:
        """Trains and evaluates one network.

        Returns:
            ``val_acc1`` and, above 5 classes, ``val_acc5`` in percent after the last iteration,
            ``train_loss`` of the last batch that was logged, ``layers_before`` and
            ``layers_after`` training (see ``Evaluator.layers``), ``conditions``, and the origin of
            the ``weights``.

        Raises:
            InputError: a file is damaged.
        """
        [seed], data = job.seeds, job.parts.data
        trainer = job.parts.trainer.over(len(data.train))
        host, evaluator = network.backbone, Evaluator(data, self.evaluation, job.device)
        before = evaluator.layers(host)
        sample = partial(labelled_image, data, self.augment)
        how = {"seed": seed, "workers": trainer.workers, "repeats": self.repeats}
        loader = partial(train_batches, data, sample, collate=collate, **how)
        of_noise = host.mean, host.std
        objective = Objective(self.mix, len(data.classes), seed, *of_noise, self.uniformity)
        TrainingLoop(network, objective, loader, trainer, job.recorder, job.device).fit()
        job.recorder.save_weights(network.state_dict())
        results: Result = evaluator.accuracy(network)
        results |= {"train_loss": _last_loss(job.recorder)}
        results |= {"layers_before": before, "layers_after": evaluator.layers(host)}
        head = "last iteration, one crop, classifier from scratch"
        results |= {"conditions": evaluator.conditions(head), "weights": weights_of(host)}
        return {seed: results}


def _last_loss(recorder: Recorder) -> float | None:
    """Reads the last loss from the log, which resumed runs also have; None except in process 0."""
    if distributed.rank() > 0:
        return None
    lines = recorder.log_file.read_text("utf-8").splitlines()
    return json.loads(lines[-1])["loss_cls"][0]
