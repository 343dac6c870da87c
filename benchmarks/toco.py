"""ToCo's own training step, run from a checkout of github.com/rulixiang/ToCo (never copied).

The two contrastive losses and their inputs are left out. Its dense energy is C++ that must be built
by hand, so it is replaced by ours.
"""

import importlib
import sys
import types
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.wsss.energy import dense_energy

HIGH, LOW, BACKGROUND, SCALES, IGNORE = 0.7, 0.25, 0.5, (1.0, 0.5, 1.5), 255
DILATIONS = [1, 2, 4, 8, 12, 24]
ENERGY_WEIGHT = 0.05 * 1e-7
MEAN, STD = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
Batch = dict[str, Tensor]


class ToCoStep:
    """One step of ToCo's script, from its modules.

    Args:
        checkout: folder.
        name: of one of its backbones.
        batch: ``image`` in [0, 1], ``label``, ``box``.
        energy: whether to add L_reg, computed by our code.

    Raises:
        InputError: the folder is not a checkout, or the backbone does not exist.
    """

    def __init__(self, checkout: Path, name: str, batch: Batch, energy: bool) -> None:
        self.cams, self.loss, images, optimizer, par, model = _modules(checkout)
        if not hasattr(model.encoder, name):
            raise InputError(
                f"--name: ToCo has no {name}; take a DeiT or ViT of its model/backbone"
            )
        place = batch["image"].device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it uses deprecated functions of torch
            net = model.network(name, 21, pretrained=False, init_momentum=0.9, aux_layer=-3)
        self.network, self.par = (
            net.to(place).train(),
            par.PAR(num_iter=10, dilations=DILATIONS).to(place),
        )
        self.denormalized, self.energy = images.denormalize_img2, energy
        groups = zip(self.network.get_param_groups(), (1, 1, 10, 10))
        self.optimizer = optimizer.PolyWarmupAdamW(
            [{"params": params, "lr": 6e-5 * factor} for params, factor in groups],
            lr=6e-5, weight_decay=0.01, betas=(0.9, 0.999),
            warmup_iter=1500, max_iter=20000, warmup_ratio=1e-6, power=0.9,
        )  # fmt: skip
        mean, std = (torch.tensor(v, device=place).view(3, 1, 1) for v in (MEAN, STD))
        self.batch, self.inputs = batch, (batch["image"] - mean) / std

    def __call__(self) -> dict[str, Tensor]:
        """Makes a step; returns the losses before it."""
        inputs, label, box = self.inputs, self.batch["label"], self.batch["box"]
        images = self.denormalized(inputs.clone())
        cams, _ = self.cams.multi_scale_cam2(self.network, inputs=inputs, scales=SCALES)
        cls, seg, _, aux = self.network(inputs)
        valid, _ = self.cams.cam_to_label(
            cams, label, box, BACKGROUND, HIGH, LOW, ignore_mid=True, ignore_index=IGNORE
        )
        pseudo = self.cams.refine_cams_with_bkg_v2(
            self.par, images, valid, label, HIGH, LOW, IGNORE, box
        ).long()
        seg = F.interpolate(seg, size=pseudo.shape[1:], mode="bilinear", align_corners=False)
        losses = {
            "cls": F.multilabel_soft_margin_loss(cls, label),
            "aux": F.multilabel_soft_margin_loss(aux, label),
            "seg": 0.1 * self.loss.get_seg_loss(seg, pseudo, ignore_index=IGNORE),
        }
        if self.energy:
            own = dense_energy(self.batch["image"], seg, pseudo, box, filter="toco")
            losses["reg"] = ENERGY_WEIGHT * own
        self.optimizer.zero_grad()
        sum(losses.values()).backward()
        self.optimizer.step()
        return {name: value.detach() for name, value in losses.items()}


@torch.no_grad()
def copy_weights(theirs: nn.Module, ours: nn.Module) -> None:
    """Copies ToCo's weights into our network; its layers have timm's names."""
    encoder = {k: v for k, v in theirs.encoder.state_dict().items() if not k.startswith("head.")}
    ours.backbone.network.load_state_dict(encoder)
    pairs = [(theirs.classifier, ours.classifier), (theirs.aux_classifier, ours.aux_classifier)]
    for source, target in [*pairs, (theirs.decoder, ours.decoder)]:
        for weight, own in zip(source.parameters(), target.parameters(), strict=True):
            own.copy_(weight)


def _modules(checkout: Path) -> list[types.ModuleType]:
    """Imports camutils, losses, imutils, optimizer, PAR and model_seg_neg."""
    if not (checkout / "model" / "model_seg_neg.py").is_file():
        raise InputError(
            f"--toco: no ToCo in {checkout}; expected a checkout of github.com/rulixiang/ToCo"
        )
    sys.path.insert(0, str(checkout))
    missing = types.ModuleType("bilateralfilter")  # its C++, always imported
    missing.bilateralfilter = missing.bilateralfilter_batch = None
    sys.modules.setdefault("bilateralfilter", missing)
    names = ["utils.camutils", "model.losses", "utils.imutils", "utils.optimizer", "model.PAR",
             "model.model_seg_neg"]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its models replace timm's in the registry
        return [importlib.import_module(name) for name in names]
