"""Weakly supervised segmentation: image-level labels in, pixel labels out, in a single stage."""

import math
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.checks import require
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.vit import TokenStream, ViT
from oversmoothing.lab.data.augment import Augment, labelled_crop
from oversmoothing.lab.data.image_set import IGNORE
from oversmoothing.lab.data.loading import train_batches
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import (
    Job,
    OnBackbone,
    Parts,
    Result,
    Task,
    require_kind,
    require_patches,
)
from oversmoothing.lab.tasks.overlap import upsampled
from oversmoothing.lab.tasks.splits import miou_of_one_label
from oversmoothing.lab.tasks.wsss.crf import CRF
from oversmoothing.lab.tasks.wsss.energy import dense_energy
from oversmoothing.lab.tasks.wsss.evaluator import Evaluator
from oversmoothing.lab.tasks.wsss.labels import Labeller
from oversmoothing.lab.tasks.wsss.network import Network, present_classes
from oversmoothing.lab.tasks.wsss.settings import Evaluation, Method
from oversmoothing.lab.training.loop import BaseObjective, Batch, Checks, TrainingLoop
from oversmoothing.lab.training.recipes import Recipe

if TYPE_CHECKING:
    from oversmoothing.lab.tasks.wsss.pictures import Viewer


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

    diagnoses: ClassVar[bool] = True
    kinds: ClassVar[dict[str, tuple[Any, str]]] = {"trainer": (Recipe, "choose trainer=toco")}
    method: Method
    augment: Augment
    evaluation: Evaluation
    adaptation: int = 0
    aux_block: int = -3

    @classmethod
    def accept(cls, parts: Parts) -> None:
        super().accept(parts)
        if not getattr(parts.data, "background", False):
            raise InputError(
                f"data {parts.data.name}: has no background, which CAMs need; choose VOC or COCO"
            )

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> Network:
        """Builds the network; the seed draws all weights that are not pretrained."""
        [seed] = seeds
        torch.manual_seed(seed)
        self.accept(parts)
        vit = parts.backbone(aggregators=parts.aggregators)
        require_kind(
            "backbone", vit, TokenStream, "choose backbone=deit_ti or another vision transformer"
        )
        exists = -vit.depth <= self.aux_block < vit.depth
        wanted = f"a block 0 to {vit.depth - 1}, or -1 for the last"
        require("task", aux_block=(self.aux_block, exists, wanted))
        return Network(vit, len(parts.data.label_names) - 1, self.aux_block).to(device)

    def check(self, network: Network, parts: Parts) -> None:
        """Refuses sizes that are not multiples of the patch."""
        warmup = getattr(parts.trainer, "warmup", 0)
        fits = self.adaptation == 0 or self.adaptation > warmup >= 0
        wanted = f"0, or more than trainer.warmup={warmup} iterations"
        require("task", adaptation=(self.adaptation, fits, wanted))
        if self.adaptation and parts.trainer and not network.backbone.pretrained:
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

    def chance(self, parts: Parts, seed: int) -> dict[str, float]:
        if not self.method.segments:
            return {}
        split = self.evaluation.splits[0]
        return {f"{split}_seg_miou": miou_of_one_label(parts.data, self.evaluation, split)}

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
        from oversmoothing.lab.tasks.wsss.pictures import leave_pictures  # matplotlib

        [seed], data, every = job.seeds, job.parts.data, self.evaluation.every
        trainer = job.parts.trainer.over(len(data.train))
        own = (job.recorder, job.device)
        evaluator = Evaluator(network, data, self.evaluation, job.device, job.recorder, self.method)
        self._require_labels(evaluator)
        before = evaluator.layers()
        sample = partial(labelled_crop, data, self.augment)
        loader = partial(train_batches, data, sample, seed=seed, workers=trainer.workers)
        if self.adaptation:
            teacher = job.parts.backbone(aggregators=[NoAggregator]).to(job.device)
            adapt(network.backbone, teacher, self.adaptation, loader, trainer, *own)
        checks = Checks(every, evaluator.during_training) if every else None
        objective = Objective(self.method, network)
        during = {"before": self.adaptation, "checks": checks, "layers": evaluator.layers}
        training = TrainingLoop(network, objective, loader, trainer, *own, **during)
        training.fit()
        job.recorder.save_weights(network.state_dict())
        results = evaluator.measure()
        if every:
            results["history"] = training.history
        results |= {"layers_before": before, "layers_after": evaluator.layers()}
        leave_pictures(evaluator, job.recorder, seed, results)
        return {seed: results}

    def _require_labels(self, evaluator: Evaluator) -> None:
        """Raises InputError if an image of the training or the evaluation has no label."""
        data, every = evaluator.data, self.evaluation.every
        data.require_labels(data.train)
        measured = dict.fromkeys([*self.evaluation.splits, *(["val"] if every else [])])
        data.require_masks(*measured)
        for split in measured:
            data.require_labels(evaluator.ids(split))
            data.require_sizes(evaluator.ids(split))

    def viewer(self, network: Network, crf: bool = False, known: bool = False) -> "Viewer":
        """Returns a viewer with the settings of the evaluation.

        Args:
            network: trained.
            crf: refine masks by the dense CRF of the evaluation, or by the default one if it has
                none.
            known: limit masks to the classes of the image's label.
        """
        own = (self.evaluation.crf or CRF()) if crf else None
        from oversmoothing.lab.tasks.wsss.pictures import Viewer  # matplotlib

        return Viewer(network, self.method, self.evaluation, own, known)


class Objective(BaseObjective):
    """Computes the losses of a batch.

    .. math:: L = L_{cls} + L_{cls}^m + λ_{seg} L_{seg} + λ_{reg} L_{reg}

    Args:
        method: weights and schedule.
        network: computes the CAMs for pseudo labels.
    """

    def __init__(self, method: Method, network: Network) -> None:
        self.method, self.network, self.labeller = method, network, Labeller(network, method)

    def phase(self, batch: dict[str, Any], step: int) -> Hashable:
        """Returns False without L_seg and L_reg, else the labels' layer and the most classes."""
        joined = self.joined(step)
        return joined and (step < self.method.aux_labels_until, max(batch["num_present"]))

    def joined(self, step: int) -> bool:
        """Whether L_seg and L_reg are part of this step's loss."""
        return self.method.segments and step >= self.method.start

    @torch.no_grad()
    def prepare(self, batch: dict[str, Any], step: int) -> dict[str, Any]:
        """Adds the pseudo labels ``pseudo`` (B, H, W) and their ``counts``, for L_seg.

        It also sets the decoder's gradients to 0 if the method has ``zero_gradients``.
        """
        if not self.joined(step):
            if self.method.zero_gradients:
                for parameter in self.network.decoder.parameters():
                    parameter.grad = torch.zeros_like(parameter)
            return batch
        images, most = batch["image"], max(batch["num_present"])
        present = present_classes(batch["label"], most)
        last, aux = self.labeller.cams(images, present)
        cam = aux if step < self.method.aux_labels_until else last
        pseudo = self.labeller.pseudo(cam, present, images, batch["box"])
        return batch | {"pseudo": pseudo, "counts": count_labels(pseudo)}

    def losses(self, model: torch.nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """Returns weighted losses of a part; their sum over parts and processes is the batch's."""
        method, joined = self.method, self.joined(step)
        out = model(part["image"], segment=joined)
        share = len(part["image"]) / part["batch_size"]
        losses = {"cls": share * _classification(out.cls, part["label"])}
        if method.aux_weight:
            losses["aux"] = method.aux_weight * share * _classification(out.aux, part["label"])
        if not joined:
            return losses
        logits = upsampled(out.seg, part["image"].shape[-2:], aligned=False)
        if method.seg_weight:
            pseudo, counts = part["pseudo"], part["counts"]
            seg = segmentation_loss(logits, pseudo, counts)
            losses["seg"] = method.seg_weight * seg
        if method.reg_weight:
            losses["reg"] = method.reg_weight * ENERGY_UNIT * self._energy(logits, part)
        return losses

    def _energy(self, logits: Tensor, part: dict[str, Any]) -> Tensor:
        method = self.method
        return dense_energy(
            part["image"],
            logits,
            part["pseudo"],
            part["box"],
            sigma_rgb=method.sigma_rgb,
            sigma_xy=method.sigma_xy,
            filter=method.filter,
            num_images=part["batch_size"],
        )


def adapt(
    student: ViT,
    teacher: ViT,
    iterations: int,
    loader: Callable[..., Iterator[Batch]],
    trainer: Recipe,
    recorder: Recorder,
    device: torch.device,
) -> None:
    """Adapts pretrained weights to an aggregator before the training, without labels.

    In the paper, weights trained without centering are used directly with it. Here the network with
    the aggregator (student) first learns to output the patch tokens of the same weights without it
    (teacher). This extension of the paper is off by default. The student is trained in place,
    unless a resumed run has finished this phase.

    Args:
        student: with the aggregator.
        teacher: the same weights without the aggregator.
        iterations: number of optimisation steps; all other settings come from ``trainer``.
        loader, trainer, recorder, device: see ``TrainingLoop``.
    """
    own = replace(trainer, iterations=iterations)
    parts = (Student(student), Imitation(teacher), loader, own, recorder, device)
    TrainingLoop(*parts, phase="adaptation").fit()


class Student(OnBackbone):
    """A backbone without heads, in a form for the training loop."""

    def __init__(self, backbone: ViT) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        return self.backbone(images)[0]

    def parameter_groups(self, lr: float, head_factor: float) -> list[dict[str, Any]]:
        """Returns all trained parameters, at ``lr``."""
        return [{"params": [p for p in self.parameters() if p.requires_grad], "lr": lr}]


class Imitation(BaseObjective):
    """Mean squared difference of the final tokens, which the last norm scales to unit variance."""

    def __init__(self, teacher: ViT) -> None:
        self.teacher = teacher.eval().requires_grad_(False)

    @torch.no_grad()
    def prepare(self, batch: Batch, step: int) -> Batch:
        """Adds the teacher's ``tokens``."""
        return batch | {"tokens": self.teacher(batch["image"])[0]}

    def losses(self, model: nn.Module, part: Batch, step: int) -> dict[str, Tensor]:
        """Returns the loss of a part; summed over parts and processes it is the batch's loss."""
        share = len(part["image"]) / part["batch_size"]
        tokens = model(part["image"])
        return {"imitation": share * F.mse_loss(tokens.float(), part["tokens"].float())}


ENERGY_UNIT = 1e-7  # the energy is a sum over all pairs of pixels (Tang et al., 2018)


class Counts(NamedTuple):
    """Numbers of background and foreground pixels in the whole batch, over all processes."""

    background: Tensor
    foreground: Tensor


def count_labels(labels: Tensor) -> Counts:
    """Counts labels over all processes, so that parts of a batch share one denominator."""
    foreground = (labels > 0) & (labels != IGNORE)
    return Counts(*distributed.sum_over_processes(Counts((labels == 0).sum(), foreground.sum())))


def segmentation_loss(logits: Tensor, labels: Tensor, counts: Counts) -> Tensor:
    """Computes ½ (mean cross-entropy over background pixels + mean over foreground pixels).

    A mean over no pixels is 0; in ToCo's code it is NaN.

    Args:
        logits: (b, 1 + K, H, W), a part of the batch.
        labels: (b, H, W) in 0…K; 255 is ignored.
        counts: of the whole batch, so that the losses of the parts add up.

    Shapes: -> scalar.
    """
    each = F.cross_entropy(logits.float(), labels, ignore_index=IGNORE, reduction="none")
    background = each.where(labels == 0, 0).sum()  # boolean indexing synchronises GPUs
    foreground = each.where((labels > 0) & (labels != IGNORE), 0).sum()
    parts = (background, foreground), (n.clamp(min=1) for n in counts)
    return 0.5 * sum(total / n for total, n in zip(*parts))


def _classification(logits: Tensor, labels: Tensor) -> Tensor:
    return F.multilabel_soft_margin_loss(logits.float(), labels)
