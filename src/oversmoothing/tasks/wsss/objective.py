"""What the network is trained for: L = L_cls + L_cls^m + λ_seg L_seg + λ_reg L_reg."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.tasks.wsss.cam import multi_scale_cams, present_classes
from oversmoothing.tasks.wsss.energy import dense_energy
from oversmoothing.tasks.wsss.losses import count_labels, segmentation_loss
from oversmoothing.tasks.wsss.network import Network
from oversmoothing.tasks.wsss.par import PAR
from oversmoothing.tasks.wsss.pseudo import pseudo_labels

ENERGY_UNIT = 1e-7  # the energy is a sum over all pairs of pixels (Tang et al., 2018)


@dataclass(frozen=True)
class Method:
    """Losses and pseudo labels of the pipeline (ToCo's without its two contrastive losses).

    Args:
        aux_weight: of L_cls^m, the auxiliary classifier's loss; 0: none.
        seg_weight: of L_seg; 0 leaves the decoder untrained.
        reg_weight: of L_reg.
        start: iterations of classification before L_seg and L_reg join.
        aux_labels_until: pseudo labels come from the auxiliary CAM up to this iteration, from the
            last layer's after it (ToCo's COCO schedule; 0 on VOC).
        high, low: background scores of the two runs that make pseudo labels.
        cam_scales: of the input, each with its mirror image.
        par_iterations: of pixel-adaptive refinement.
        sigma_rgb: of L_reg, on 0…255.
        sigma_xy: of L_reg, in pixels of the crop.
        filter: how L_reg filters, see ``bilateral.py``. ``toco`` returns 0.52 to 0.61 of the true
            sum, and the recipe's weight was chosen with it; ``lattice`` and ``exact`` regularise
            1.6 to 1.9 times as strongly at the same weight.
        toco_compat: ToCo's rows of PAR that sum to 1.01, and its NaN of L_seg without
            background or foreground pixels.

    Raises:
        InputError: a weight below 0, or background scores out of order.
    """

    aux_weight: float = 1.0
    seg_weight: float = 0.1
    reg_weight: float = 0.05
    start: int = 2000
    aux_labels_until: int = 0
    high: float = 0.7
    low: float = 0.25
    cam_scales: list[float] = field(default_factory=lambda: [1.0, 0.5, 1.5])
    par_iterations: int = 10
    sigma_rgb: float = 15.0
    sigma_xy: float = 100.0
    filter: Literal["toco", "lattice", "exact"] = "toco"
    toco_compat: bool = False

    def __post_init__(self) -> None:
        for key in ("aux_weight", "seg_weight", "reg_weight", "start", "par_iterations"):
            if getattr(self, key) < 0:
                raise InputError(f"task.method.{key}: expected 0 or more, got {getattr(self, key)}")
        if not 0 < self.low <= self.high < 1:
            raise InputError(
                f"task.method.low, .high: expected 0 < low <= high < 1, got {self.low}, {self.high}"
            )
        if not self.cam_scales or min(self.cam_scales) <= 0:
            raise InputError(
                f"task.method.cam_scales: expected scales above 0, got {self.cam_scales}"
            )

    @property
    def segments(self) -> bool:
        """Whether the decoder is trained at all."""
        return self.seg_weight > 0 or self.reg_weight > 0

    def par(self) -> PAR:
        """The refinement that pseudo labels take."""
        return PAR(iterations=self.par_iterations, toco_compat=self.toco_compat)


class Objective:
    """Losses of a batch, for the engine.

    Args:
        method: weights and schedule.
        network: makes the CAMs.
    """

    def __init__(self, method: Method, network: Network) -> None:
        self.method, self.network = method, network
        self.par = method.par().to(next(network.parameters()).device)

    def joined(self, step: int) -> bool:
        """Whether L_seg and L_reg take part in this step."""
        return self.method.segments and step >= self.method.start

    @torch.no_grad()
    def prepare(self, batch: dict[str, Any], step: int) -> dict[str, Any]:
        """Adds ``pseudo`` (B, H, W), and the pixels that L_seg is divided by."""
        if not self.joined(step):
            return batch
        present = present_classes(batch["label"])
        last, aux = multi_scale_cams(self.network, batch["image"], present, self.method.cam_scales)
        cam = aux if step < self.method.aux_labels_until else last
        box, scores = batch["box"], (self.method.high, self.method.low)
        pseudo = pseudo_labels(cam, present, batch["image"], box, self.par, *scores)
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
