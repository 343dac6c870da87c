"""Image classification: a network trained on images with one class each."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.cnn import CNN, synchronised
from oversmoothing.lab.backbones.vit import TokenStream, ViT, create_vit
from oversmoothing.lab.data.image_set import ImageSet, LabelledImages
from oversmoothing.lab.data.loading import mixed_seed, train_batches
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import (
    Job,
    OnBackbone,
    Parts,
    Result,
    Task,
    require_backbone,
    require_data,
    require_patches,
    require_trainer,
    weights_of,
)
from oversmoothing.lab.tasks.classification.augment import (
    Augment,
    Mix,
    collate,
    erased,
    labelled_image,
)
from oversmoothing.lab.tasks.classification.evaluator import Evaluation, Evaluator
from oversmoothing.lab.training.loop import TrainingLoop
from oversmoothing.lab.training.recipes import Recipe
from oversmoothing.metrics.uniformity import uniformity

IMAGENET = 1000  # classes, in the order of their folders' names


class Classifier(OnBackbone):
    """Computes logits from the CLS token, or from the mean of tokens or of a CNN's feature map.

    The mean is used for backbones without CLS token.

    Args:
        backbone: ViT, T2T or CNN.
        num_classes: K.
    """

    def __init__(self, backbone: TokenStream | CNN, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.dim, num_classes)
        nn.init.trunc_normal_(self.head.weight, std=0.02)  # as DeiT's
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor, with_tokens: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Computes logits and, with ``with_tokens``, the last tokens without CLS.

        Shapes: images (B, 3, H, W) in [0, 1] -> (B, K), or (B, K) and (B, N, C).
        """
        features, _ = self.backbone(images)
        logits = self.head(self._pooled(features))
        return (logits, self._tokens(features)) if with_tokens else logits

    def _tokens(self, features: Tensor) -> Tensor:
        if features.ndim == 4:
            return features.flatten(2).mT
        return features[:, self.backbone.prefix :]

    def _pooled(self, features: Tensor) -> Tensor:
        """Pools features to one vector. Shapes: (B, N, C) or (B, C, h, w) -> (B, C)."""
        if features.ndim == 4:
            return features.mean(dim=(2, 3))
        return features[:, 0] if self.backbone.prefix else features.mean(dim=1)


def classifier(backbone: Callable[..., ViT], host: nn.Module) -> Classifier | None:
    """Adds the pretrained ImageNet-1k head to a backbone; None if the weights have no such head.

    Args:
        backbone: the factory that made ``host``; its arguments name the weights.
        host: the backbone with pretrained weights and aggregators.

    Raises:
        InputError: the head in the weights has another size.
    """
    if not isinstance(backbone, partial) or type(host) is not ViT or not host.pretrained:
        return None
    if host.prefix != 1:  # two heads, or none on CLS
        return None
    plain = create_vit(host.name)
    plain.reset_classifier(IMAGENET)
    named = {"weights": "timm", "sha256": None} | backbone.keywords  # ViT's defaults
    given = plain, host.name, named["weights"], named["sha256"]
    if not any(key.endswith("head.weight") for key in pretrained.read(pretrained.file_of(*given))):
        return None
    pretrained.load(*given, heads=())
    network = Classifier(host, IMAGENET)
    network.head.load_state_dict(plain.head.state_dict())
    return network


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


@dataclass(frozen=True)
class Objective:
    """Mixes a batch and computes its losses.

    As in DeiT, each process mixes the images of its own slice of the batch. The pairs therefore
    depend on the number of processes, but not on the number of parts.

    Args:
        mix: mixes images and smooths targets.
        num_classes: K.
        seed: seeds the mixing, together with the step and the process.
        mean, std: of the backbone's normalisation, in which noise is drawn.
        uniformity: weight of the uniformity loss of the last tokens, each divided by its norm.
    """

    mix: Mix
    num_classes: int
    seed: int
    mean: Tensor
    std: Tensor
    uniformity: float = 0.0

    @torch.no_grad()
    def prepare(self, batch: dict[str, Any], step: int) -> dict[str, Any]:
        """Erases and mixes the images, and adds ``soft`` targets (B, K)."""
        seed = mixed_seed(self.seed, "mix", step, distributed.rank())
        images = erased(batch, self.mean, self.std)
        images, soft = self.mix(images, batch["target"], self.num_classes, seed)
        return batch | {"image": images, "soft": soft}

    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """Returns the losses of a part; summed over parts and processes they are the batch's."""
        share = len(part["image"]) / part["batch_size"]
        if not self.uniformity:
            return {"cls": share * F.cross_entropy(model(part["image"]).float(), part["soft"])}
        logits, tokens = model(part["image"], with_tokens=True)
        with torch.autocast(tokens.device.type, enabled=False):  # 8 bits are too few near 1
            spread = uniformity(F.normalize(tokens.float(), dim=-1)).mean()
        cls = F.cross_entropy(logits.float(), part["soft"])
        return {"cls": share * cls, "uniformity": share * self.uniformity * spread}


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
