"""Measures pretrained networks with aggregators, without training."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.vit import TokenStream
from oversmoothing.lab.data.image_set import ImageSet, LabelledImages
from oversmoothing.lab.tasks.base import (
    Job,
    Parts,
    Result,
    Task,
    require_backbone,
    require_data,
    require_patches,
    weights_of,
)
from oversmoothing.lab.tasks.classification.evaluation import Evaluation
from oversmoothing.lab.tasks.classification.evaluator import Evaluator
from oversmoothing.lab.tasks.classification.network import IMAGENET, classifier


@dataclass(frozen=True)
class Pretrained(Task):
    """Measures an untrained or pretrained network on validation images.

    Accuracy is measured if the images have the 1000 classes of ImageNet, with the classifier in the
    weights.

    Args:
        evaluation: what is measured, and how.
    """

    needs: ClassVar[tuple[str, ...]] = ("data", "backbone")
    toy: ClassVar[Any] = LabelledImages("toy", (), (), ("a",), None, None, "")
    evaluation: Evaluation

    @classmethod
    def accept(cls, parts: Parts) -> None:
        wanted = "task classification_eval needs images; choose data=voc, imagenet or digits"
        require_data(parts.data, (LabelledImages, ImageSet), wanted)

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> TokenStream:
        """Builds the network; the seed draws the parts without pretrained weights.

        Raises:
            InputError: the data are not images, the backbone has no tokens, or backbone or
                aggregators refuse their options.
        """
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        host = parts.backbone(aggregators=parts.aggregators)
        require_backbone(host, TokenStream, "choose a vision transformer, backbone=deit_ti")
        return host.to(device)

    def check(self, network: TokenStream, parts: Parts) -> None:
        """Refuses data without validation images, and sizes that are not multiples of the patch."""
        if not parts.data.val:
            raise InputError(f"data {parts.data.name}: has no validation images; choose other data")
        require_patches(network, {"evaluation.size": self.evaluation.size})

    def run(self, network: TokenStream, job: Job) -> dict[int, Result]:
        """Measures one network.

        Returns:
            ``layers_before`` (see ``Evaluator.layers``), ``val_acc1`` and ``val_acc5`` if they can
            be measured, ``conditions``, and the origin of the ``weights``.

        Raises:
            InputError: a file is damaged.
        """
        [seed], data = job.seeds, job.parts.data
        evaluator = Evaluator(data, self.evaluation, job.device)
        results: Result = {"layers_before": evaluator.layers(network)}
        of_imagenet = isinstance(data, LabelledImages) and len(data.classes) == IMAGENET
        whole = classifier(job.parts.backbone, network) if of_imagenet else None
        if whole is not None:
            results |= evaluator.accuracy(whole.to(job.device))
            results["conditions"] = evaluator.conditions("no training, classifier of the weights")
        else:
            why = "no classifier in the weights" if of_imagenet else f"{len(data.classes)} classes"
            accuracy = {"accuracy": f"not measured: {why}"}
            results["conditions"] = evaluator.conditions("") | accuracy
        return {seed: results | {"weights": weights_of(network)}}
