"""The loss of the wsss task: L = L_cls + L_cls^m + λ_seg L_seg + λ_reg L_reg."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing import distributed
from oversmoothing.lab.tasks.wsss.cam import present_classes
from oversmoothing.lab.tasks.wsss.energy import dense_energy
from oversmoothing.lab.tasks.wsss.labels import Labeller
from oversmoothing.lab.tasks.wsss.method import Method
from oversmoothing.lab.tasks.wsss.network import Network
from oversmoothing.metrics.segmentation import IGNORE

ENERGY_UNIT = 1e-7  # the energy is a sum over all pairs of pixels (Tang et al., 2018)


class Objective:
    """Computes the losses of a batch.

    Args:
        method: weights and schedule.
        network: computes the CAMs for pseudo labels.
    """

    def __init__(self, method: Method, network: Network) -> None:
        self.method, self.network, self.labeller = method, network, Labeller(network, method)

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
        logits = F.interpolate(out.seg.float(), part["image"].shape[-2:], mode="bilinear")
        if method.seg_weight:
            pseudo, counts = part["pseudo"], part["counts"]
            seg = segmentation_loss(logits, pseudo, counts, method.toco_compat)
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


class Counts(NamedTuple):
    """Numbers of background and foreground pixels in the whole batch, over all processes."""

    background: Tensor
    foreground: Tensor


def count_labels(labels: Tensor) -> Counts:
    """Counts labels over all processes, so that parts of a batch share one denominator."""
    foreground = (labels > 0) & (labels != IGNORE)
    return Counts(*distributed.sum_over_processes(Counts((labels == 0).sum(), foreground.sum())))


def segmentation_loss(
    logits: Tensor, labels: Tensor, counts: Counts, toco_compat: bool = False
) -> Tensor:
    """Computes ½ (mean cross-entropy over background pixels + mean over foreground pixels).

    A mean over no pixels is 0, or NaN with ``toco_compat``, as in ToCo's code.

    Args:
        logits: (b, 1 + K, H, W), a part of the batch.
        labels: (b, H, W) in 0…K; 255 is ignored.
        counts: of the whole batch, so that the losses of the parts add up.
        toco_compat: see above.

    Shapes: -> scalar.
    """
    each = F.cross_entropy(logits.float(), labels, ignore_index=IGNORE, reduction="none")
    background = each.where(labels == 0, 0).sum()  # boolean indexing synchronises GPUs
    foreground = each.where((labels > 0) & (labels != IGNORE), 0).sum()
    least = 0 if toco_compat else 1
    parts = (background, foreground), (n.clamp(min=least) for n in counts)
    return 0.5 * sum(total / n for total, n in zip(*parts))


def _classification(logits: Tensor, labels: Tensor) -> Tensor:
    return F.multilabel_soft_margin_loss(logits.float(), labels)
