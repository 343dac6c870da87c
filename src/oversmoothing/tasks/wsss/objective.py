"""The loss of the wsss task: L = L_cls + L_cls^m + λ_seg L_seg + λ_reg L_reg."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.tasks.wsss.cam import present_classes
from oversmoothing.tasks.wsss.energy import dense_energy
from oversmoothing.tasks.wsss.labels import Labeller
from oversmoothing.tasks.wsss.losses import count_labels, segmentation_loss
from oversmoothing.tasks.wsss.method import Method
from oversmoothing.tasks.wsss.network import Network

ENERGY_UNIT = 1e-7  # the energy is a sum over all pairs of pixels (Tang et al., 2018)


class Objective:
    """Computes the losses of a batch.

    Args:
        method: weights and schedule.
        network: makes the CAMs behind pseudo labels.
    """

    def __init__(self, method: Method, network: Network) -> None:
        self.method, self.labeller = method, Labeller(network, method)

    def joined(self, step: int) -> bool:
        """Whether L_seg and L_reg are part of this step's loss."""
        return self.method.segments and step >= self.method.start

    @torch.no_grad()
    def prepare(self, batch: dict[str, Any], step: int) -> dict[str, Any]:
        """Adds the pseudo labels ``pseudo`` (B, H, W) and their ``counts``, for L_seg."""
        if not self.joined(step):
            return batch
        images, present = batch["image"], present_classes(batch["label"])
        last, aux = self.labeller.cams(images, present)
        cam = aux if step < self.method.aux_labels_until else last
        pseudo = self.labeller.pseudo(cam, present, images, batch["box"])
        return batch | {"pseudo": pseudo, "counts": count_labels(pseudo)}

    def losses(self, model: torch.nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        """Weighted losses of a part; the sum over parts and processes is the batch's loss."""
        method, joined = self.method, self.joined(step)
        out = model(part["image"], segment=joined)
        share = len(part["image"]) / part["batch_size"]
        losses = {"cls": share * _classification(out.cls, part["label"])}
        if method.aux_weight:
            aux = _classification(out.aux, part["label"])
            losses["aux"] = method.aux_weight * share * aux
        if joined and method.seg_weight:
            pseudo, counts = part["pseudo"], part["counts"]
            seg = segmentation_loss(out.seg, pseudo, counts, method.toco_compat)
            losses["seg"] = method.seg_weight * seg
        if joined and method.reg_weight:
            losses["reg"] = method.reg_weight * ENERGY_UNIT * self._energy(out.seg, part)
        return losses

    def _energy(self, logits: Tensor, part: dict[str, Any]) -> Tensor:
        method, images = self.method, part["image"]
        return dense_energy(
            images,
            F.interpolate(logits.float(), images.shape[-2:], mode="bilinear"),
            part["pseudo"],
            part["box"],
            sigma_rgb=method.sigma_rgb,
            sigma_xy=method.sigma_xy,
            filter=method.filter,
            num_images=part["batch_size"],
        )


def _classification(logits: Tensor, labels: Tensor) -> Tensor:
    return F.multilabel_soft_margin_loss(logits.float(), labels)
