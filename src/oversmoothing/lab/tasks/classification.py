"""Image classification: a network trained on images with one class each."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.cnn import CNN, synchronised
from oversmoothing.lab.backbones.vit import TokenStream, ViT, create_vit
from oversmoothing.lab.data.image_set import ImageSet, LabelledImages, to_float, to_tensor
from oversmoothing.lab.data.loading import evenly_spaced, mixed_seed, read_ahead, train_batches
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks import layers
from oversmoothing.lab.tasks.base import (
    Job,
    OnBackbone,
    Parts,
    Result,
    Task,
    require_kind,
    require_patches,
    weights_of,
)
from oversmoothing.lab.tasks.classification_augment import (
    Augment,
    Mix,
    collate,
    erased,
    labelled_image,
)
from oversmoothing.lab.training.loop import BaseObjective, TrainingLoop
from oversmoothing.lab.training.recipes import Recipe
from oversmoothing.metrics.uniformity import uniformity


@dataclass(frozen=True)
class Evaluation:
    """Settings of an ``Evaluator``.

    An image's shorter side is resized to S / ``crop`` (bicubic); then an S × S square is cut from
    its centre.

    Args:
        size: S, side of the network's input.
        crop: S / length of the shorter side; DeiT uses 0.875.
        layer_images: number of validation images, evenly spaced, whose tokens are compared after
            every block; 0: none.
        batch: number of images per forward pass.
        workers: number of processes that read images; None: one for each core.

    Raises:
        InputError: a value is out of range.
    """

    size: int = 224
    crop: float = 0.875
    layer_images: int = 64
    batch: int = 64
    workers: int | None = None

    def __post_init__(self) -> None:
        require(
            "task.evaluation",
            **at_least(1, size=self.size, batch=self.batch),
            **at_least(0, layer_images=self.layer_images, workers=self.workers),
            crop=(self.crop, 0 < self.crop <= 1, "above 0, at most 1"),
        )

    def prepared(self, image: Image.Image) -> Tensor:
        """Resizes and crops an image. Shapes: RGB image -> (3, S, S) uint8."""
        from torchvision.transforms import functional as TF  # takes seconds

        resized = TF.resize(image, self.side, TF.InterpolationMode.BICUBIC)
        return to_tensor(TF.center_crop(resized, self.size))

    @property
    def side(self) -> int:
        """The shorter side of a resized image."""
        return math.floor(self.size / self.crop)


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

    diagnoses: ClassVar[bool] = True
    toy: ClassVar[Any] = LabelledImages("toy", ("a", "b"), (), (), None, None, "")
    kinds: ClassVar[dict[str, tuple[Any, str]]] = {
        "data": (
            LabelledImages,
            "task classification needs one class per image; choose data=imagenet, imagenet100, "
            "digits or scene_crops",
        ),
        "trainer": (Recipe, "choose trainer=deit"),
    }
    augment: Augment
    mix: Mix
    evaluation: Evaluation
    repeats: int = 1
    uniformity: float = 0.0

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> "Classifier":
        """Builds the network; batch norms are synchronised where GPUs share batches."""
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        host = parts.backbone(aggregators=parts.aggregators)
        require_kind(
            "backbone", host, (TokenStream, CNN), "choose backbone=deit_ti, t2t_vit_7 or resnet50"
        )
        return synchronised(Classifier(host, len(parts.data.classes))).to(device)

    def check(self, network: "Classifier", parts: Parts) -> None:
        """Refuses sizes that are not multiples of the patch, and batches that cannot be mixed."""
        weight = (self.uniformity, 0 <= self.uniformity < math.inf, "0 or more")
        require("task", uniformity=weight, **at_least(1, repeats=self.repeats))
        share = parts.trainer.batch_size // distributed.world()
        if self.mix.mixes and share % 2:
            raise InputError(
                f"trainer.batch_size: images are mixed in pairs, and each process has {share} of "
                "them; make it even, or set task.mix.prob=0"
            )
        sizes = {"augment.size": self.augment.size, "evaluation.size": self.evaluation.size}
        require_patches(network.backbone, sizes)

    def chance(self, parts: Parts, seed: int) -> dict[str, float]:
        """One over the number of classes, since the data sets of this task are balanced."""
        return {"val_acc1": 100 / len(parts.data.classes)}

    def run(self, network: "Classifier", job: Job) -> dict[int, Result]:
        """Trains and evaluates one network.

        Returns:
            ``val_acc1`` and, above 5 classes, ``val_acc5`` in percent after the last iteration,
            ``train_loss`` of the last batch that was logged, ``layers_before`` and
            ``layers_after`` training (see ``Evaluator.layers``), ``conditions``, and the origin of
            the ``weights``.
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
        own, measure = (job.recorder, job.device), partial(evaluator.layers, host)
        TrainingLoop(network, objective, loader, trainer, *own, layers=measure).fit()
        job.recorder.save_weights(network.state_dict())
        with job.recorder.progress(len(data.val), "evaluation") as bar:
            results: Result = evaluator.accuracy(network, bar.update)
        results |= {"train_loss": _last_loss(job.recorder)}
        results |= {"layers_before": before, "layers_after": evaluator.layers(host)}
        head = "last iteration, one crop, classifier from scratch"
        results |= {"conditions": evaluator.conditions(head), "weights": weights_of(host)}
        return {seed: results}


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


@dataclass(frozen=True)
class Objective(BaseObjective):
    """Mixes a batch and computes its losses.

    As in DeiT, each process mixes the images of its slice of the batch. The pairs therefore
    depend on the number of processes, but not on the number of parts.

    Args:
        mix: mixes images and smooths targets.
        num_classes: K.
        seed: seeds the mixing, together with the step and the process.
        mean, std: of the backbone's normalisation, in which noise is drawn.
        uniformity: weight of the uniformity loss of the last tokens, each divided by its norm.
    """

    prepares_on_host: ClassVar[bool] = True
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


@dataclass(eq=False)
class Evaluator:
    """Measures networks on the validation images of a data set.

    Args:
        data: images; only ``accuracy`` needs classes.
        evaluation: the settings.
        device: of the networks.
    """

    data: LabelledImages | ImageSet
    evaluation: Evaluation
    device: torch.device

    @torch.no_grad()
    def accuracy(
        self, network: nn.Module, done: Callable[[int], object] = lambda images: None
    ) -> dict[str, float]:
        """Returns ``val_acc1`` in percent, and ``val_acc5`` if there are more than 5 classes.

        Args:
            done: called with the number of images after each batch.
        """
        network.eval()
        top = self._top()
        right = torch.zeros(len(top), device=self.device)
        mine, size = self.data.val[distributed.rank() :: distributed.world()], self.evaluation.batch
        batches = [mine[start : start + size] for start in range(0, len(mine), size)]
        read = partial(_classified, self.data, self.evaluation)
        for images, targets in read_ahead(read, batches, self.evaluation.workers):
            images = to_float(images.to(self.device, non_blocking=True))
            best = network(images).topk(max(top), dim=-1).indices
            hit = best == targets.to(self.device)[:, None]
            right += torch.stack([hit[:, :k].any(dim=-1).sum() for k in top])
            done(len(images) * distributed.world())
        totals = distributed.sum_over_processes(list(right))
        count = len(self.data.val)
        return {f"val_acc{k}": 100 * float(n) / count for k, n in zip(top, totals)}

    @torch.no_grad()
    def layers(self, backbone: nn.Module) -> dict[str, list[float | None]]:
        """Measures the similarity of an image's tokens after every block, averaged over images.

        It is measured on the patch tokens of the residual stream and on whole attention maps.

        Returns:
            ``cosine``, ``effective_rank``, ``token_variance`` and ``attention_similarity``, None
            for a block without attention; one value per block. Empty for a backbone without blocks.
        """
        if not self.layer_ids() or not isinstance(backbone, TokenStream):
            return {}
        backbone.eval()
        similarity = layers.similarities(backbone.attention_maps(x) for x in self._images())
        tokens = (
            [x[:, backbone.prefix :] for x in backbone.layers(image)] for image in self._images()
        )
        return layers.measured(tokens) | {"attention_similarity": similarity}

    def layer_ids(self) -> list[str]:
        """Returns evenly spaced validation images for ``layers``, and so images of many classes."""
        return evenly_spaced(self.data.val, self.evaluation.layer_images)

    def conditions(self, head: str) -> dict[str, Any]:
        """Describes how the numbers are measured; ``head`` describes the classifier, if any."""
        S, side = self.evaluation.size, self.evaluation.side
        how = f"shorter side resized to {side} px (bicubic), middle {S}×{S} px"
        layers = f"{len(self.layer_ids())} images of {self.data.name} val, evenly spaced, {how}"
        counted = f"{len(self.data.val)} images of {self.data.name} val, {how}, {head}"
        accuracies = {f"acc{k}": counted for k in self._top() if head}
        return {"layers": layers} | ({"val": accuracies} if accuracies else {})

    def _top(self) -> list[int]:
        return [k for k in TOP if k == 1 or k < len(self.data.classes)]

    def _images(self) -> Iterator[Tensor]:
        """Yields images for ``layers``, one by one, since N×N attention maps need much memory."""
        for id in self.layer_ids():
            image = self.evaluation.prepared(self.data.pil_image(id))
            yield to_float(image[None].to(self.device))


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
    kinds: ClassVar[dict[str, tuple[Any, str]]] = {
        "data": (
            (LabelledImages, ImageSet),
            "task classification_eval needs images; choose data=voc, imagenet or digits",
        )
    }
    evaluation: Evaluation

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> TokenStream:
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        host = parts.backbone(aggregators=parts.aggregators)
        require_kind("backbone", host, TokenStream, "choose a vision transformer, backbone=deit_ti")
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
        """
        [seed], data = job.seeds, job.parts.data
        evaluator = Evaluator(data, self.evaluation, job.device)
        results: Result = {"layers_before": evaluator.layers(network)}
        of_imagenet = isinstance(data, LabelledImages) and len(data.classes) == IMAGENET
        whole = classifier(job.parts.backbone, network) if of_imagenet else None
        if whole is not None:
            with job.recorder.progress(len(data.val), "evaluation") as bar:
                results |= evaluator.accuracy(whole.to(job.device), bar.update)
            results["conditions"] = evaluator.conditions("no training, classifier of the weights")
        else:
            why = "no classifier in the weights" if of_imagenet else f"{len(data.classes)} classes"
            accuracy = {"accuracy": f"not measured: {why}"}
            results["conditions"] = evaluator.conditions("") | accuracy
        return {seed: results | {"weights": weights_of(network)}}


IMAGENET = 1000  # classes, in the order of their folders' names


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


def _last_loss(recorder: Recorder) -> float | None:
    """Reads the last loss from the log, which resumed runs also have; None except in process 0."""
    if distributed.rank() > 0:
        return None
    lines = map(json.loads, reversed(recorder.log_file.read_text("utf-8").splitlines()))
    return next(line["loss_cls"][0] for line in lines if "loss_cls" in line)


TOP = (1, 5)


def _classified(
    data: LabelledImages, evaluation: Evaluation, ids: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Reads a batch. Shapes: -> (b, 3, S, S) uint8, (b,)."""
    images = torch.stack([evaluation.prepared(data.pil_image(id)) for id in ids])
    return images, torch.tensor([data.target(id) for id in ids])
