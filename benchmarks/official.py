"""Official code from checkouts of the user, never copied, beside ours.

- ContraNorm: github.com/PKU-ML/ContraNorm: the GCN in gnn, layers of ViT and BERT
- EMANet: github.com/XiaLiPKU/EMANet, EANet: github.com/MenghaoGuo/EANet: units and attention
- ToCo: github.com/rulixiang/ToCo: PAR, and the training step
"""

import ast
import importlib
import importlib.util
import math
import sys
import types
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.external import External
from oversmoothing.aggregators.external_multihead import ExternalMultiHead
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.cnn import Unit
from oversmoothing.lab.tasks.wsss.energy import dense_energy

GCN_NORMS = {"none": "None", "layernorm": "None", "pairnorm": "PN", "contranorm": "CN"}
SLOTS = 64  # bases of EMANet, memory of EANet
DILATIONS = (1, 2, 4, 8, 12, 24)  # of ToCo's PAR


# ---------------------------------------------------------------- ContraNorm's graph networks
class OfficialGCN(nn.Module):
    """The authors' DeepGCN of one seed. Shapes: x (N, F), adjacency (N, N) -> logits (N, classes).

    Args:
        folder: ``gnn`` of a checkout.
        method: one of ``GCN_NORMS``.
        dims: channels from the features to the classes.
        dropout: rate.
        scale: s of ContraNorm and PairNorm.
    """

    def __init__(
        self, folder: Path, method: str, dims: Sequence[int], dropout: float, scale: float = 1.0
    ) -> None:
        super().__init__()
        options = Namespace(
            nlayer=len(dims) - 1,
            hid=dims[1],
            dropout=dropout,
            norm_mode=GCN_NORMS[method],
            norm_scale=scale,
            residual=0,
            use_layer_norm=method != "none",
        )
        self.net = _gnn_models(folder).DeepGCN(options, dims[0], dims[-1])
        self.layers = [*self.net.hidden_layers, self.net.out_layer]

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.net(x, adj)[0]


def _gnn_models(folder: Path) -> types.ModuleType:
    """Imports models.py; packages that DeepGCN does not use may be missing."""
    _require(folder / "models.py", "--official")
    for name in ("torch_sparse", "torch_scatter", "einops"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            missing = types.ModuleType(name)
            missing.__getattr__ = lambda name: None  # type: ignore[method-assign]
            sys.modules[name] = missing
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("models")
    except ImportError as error:
        raise InputError(f"--official: {folder}/models.py cannot be imported ({error})") from error


# ---------------------------------------------------------------- units and layers
@dataclass(frozen=True)
class Pair:
    """Two implementations with the same weights, and the shape of their input without batch."""

    theirs: nn.Module
    ours: nn.Module
    shape: tuple[int, ...]

    def forms(self) -> dict[str, Callable[[Tensor], Tensor]]:
        theirs, ours = self.theirs, self.ours
        alone = isinstance(ours, Unit)
        return {
            "ours": ours if alone else lambda x: ours(x, Context()),
            "theirs": lambda x: out[0] if isinstance(out := theirs(x), tuple) else out,
        }


def emanet(checkout: Path, side: int) -> Pair:
    """The EM attention unit, 512 channels."""
    norm = partial(nn.BatchNorm2d, momentum=3e-4)
    theirs = one_class(checkout / "network.py", "EMAU", norm_layer=norm)(512, SLOTS)
    ours = Unit([EM(512, SLOTS)], 512)
    _copy_unit(theirs, ours)
    ours.aggregators[0].bases.copy_(theirs.mu[0].T)
    return Pair(theirs, ours, (512, side, side))


def eanet(checkout: Path, side: int) -> Pair:
    """The external attention unit, 512 channels."""
    found = one_class(checkout / "model_torch.py", "External_attention", norm_layer=nn.BatchNorm2d)
    theirs, ours = found(512), Unit([External(512, SLOTS)], 512)
    _copy_unit(theirs, ours)
    memories = (ours.aggregators[0].key, ours.aggregators[0].value)
    for memory, own in zip(memories, (theirs.linear_0, theirs.linear_1)):
        memory.weight.copy_(own.weight[..., 0])
    return Pair(theirs, ours, (512, side, side))


def eamlp(checkout: Path, side: int) -> Pair:
    """Multi-head external attention of EAMLP-7, 256 channels."""
    found = one_class(checkout / "EAMLP" / "models" / "transformer_block.py", "Attention")
    theirs, ours = found(256, num_heads=4), ExternalMultiHead(256, num_heads=4)
    own = (theirs.trans_dims, theirs.linear_0, theirs.linear_1, theirs.proj)
    for layer, source in zip((ours.query, ours.key, ours.value, ours.proj), own):
        layer.load_state_dict(source.state_dict())
    return Pair(theirs, ours, (196, 256))


def contranorm_vit(checkout: Path, side: int) -> Pair:
    """ContraNorm of its DeiT-S, s = 0.2."""
    found = one_class(checkout / "ViT_imagenet" / "models.py", "ContraNorm")
    ours = ContraNorm(384, scale=0.2, identity=False, layernorm=True)
    return Pair(found(384, scale=0.2), ours, (197, 384))


def contranorm_bert(checkout: Path, side: int) -> Pair:
    """ContraNorm of its BERT, s = 0.1, 128 tokens."""
    path = checkout / "BERT_gleu" / "transformers" / "models" / "bert" / "modeling_bert.py"
    theirs = one_class(path, "ContraNorm")(Namespace(scale=0.1, center=False))
    return Pair(theirs, ContraNorm(768, scale=0.1), (128, 768))


UNITS = {  # name: (checkout, pair)
    "EMANet's unit": ("emanet", emanet),
    "EANet's unit": ("eanet", eanet),
    "EAMLP's attention": ("eanet", eamlp),
    "ContraNorm, ViT": ("contranorm", contranorm_vit),
    "ContraNorm, BERT": ("contranorm", contranorm_bert),
}


def one_class(path: Path, name: str, **known: Any) -> type[nn.Module]:
    """Runs one class of a file, which may import old packages, with torch and the given names.

    Raises:
        InputError: the file does not exist or does not have the class.
    """
    _require(path)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
    if not tree.body:
        raise InputError(f"{path}: no class {name}; expected a checkout of the official code")
    space = {"torch": torch, "nn": nn, "F": F, "math": math, "_BatchNorm": nn.BatchNorm2d, **known}
    exec(compile(tree, str(path), "exec"), space)  # the user's own checkout
    return space[name]


def _copy_unit(theirs: nn.Module, ours: Unit) -> None:
    ours.conv1.load_state_dict(theirs.conv1.state_dict())
    ours.conv2.load_state_dict(theirs.conv2[0].state_dict())
    ours.norm.load_state_dict(theirs.conv2[1].state_dict())


# ---------------------------------------------------------------- ToCo
def toco_par(checkout: Path) -> nn.Module:
    """ToCo's pixel-adaptive refinement. Shapes: (B, 3, H, W), (B, K, H, W) -> (B, K, H, W)."""
    path = checkout / "model" / "PAR.py"
    _require(path, "--toco")
    spec = importlib.util.spec_from_file_location("toco_par", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAR(num_iter=10, dilations=list(DILATIONS))


class ToCoStep:
    """One step of ToCo's script, from its modules, without its two contrastive losses.

    Its dense energy is C++ that must be built by hand, so it is replaced by ours.

    Args:
        checkout: folder.
        name: of one of its backbones.
        batch: ``image`` in [0, 1], ``label``, ``box``.
        energy: whether to add L_reg, computed by our code.

    Raises:
        InputError: the folder is not a checkout, or the backbone does not exist.
    """

    high, low, background, ignore = 0.7, 0.25, 0.5, 255

    def __init__(
        self, checkout: Path, name: str, batch: dict[str, Tensor], energy: bool = True
    ) -> None:
        self.cams, self.loss, images, optimizer, par, model = _toco_modules(checkout)
        if not hasattr(model.encoder, name):
            raise InputError(f"--name: ToCo has no {name}; take one of its model/backbone")
        place = batch["image"].device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it uses deprecated functions of torch
            net = model.network(name, 21, pretrained=False, init_momentum=0.9, aux_layer=-3)
        self.network = net.to(place).train()
        self.par = par.PAR(num_iter=10, dilations=list(DILATIONS)).to(place)
        groups = zip(self.network.get_param_groups(), (1, 1, 10, 10))
        self.optimizer = optimizer.PolyWarmupAdamW(
            [{"params": params, "lr": 6e-5 * factor} for params, factor in groups],
            lr=6e-5, weight_decay=0.01, betas=(0.9, 0.999),
            warmup_iter=1500, max_iter=20000, warmup_ratio=1e-6, power=0.9,
        )  # fmt: skip
        colours = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        mean, std = (torch.tensor(v, device=place).view(3, 1, 1) for v in colours)
        self.batch, self.inputs, self.energy = batch, (batch["image"] - mean) / std, energy
        self.denormalized = images.denormalize_img2

    def __call__(self) -> dict[str, Tensor]:
        """Makes a step; returns the losses before it."""
        cls, seg, _, aux = self.network(self.inputs)
        pseudo, label, box = self._pseudo(), self.batch["label"], self.batch["box"]
        seg = F.interpolate(seg, size=pseudo.shape[1:], mode="bilinear", align_corners=False)
        losses = {
            "cls": F.multilabel_soft_margin_loss(cls, label),
            "aux": F.multilabel_soft_margin_loss(aux, label),
            "seg": 0.1 * self.loss.get_seg_loss(seg, pseudo, ignore_index=self.ignore),
        }
        if self.energy:
            own = dense_energy(self.batch["image"], seg, pseudo, box, filter="toco")
            losses["reg"] = 0.05 * 1e-7 * own
        self.optimizer.zero_grad()
        sum(losses.values()).backward()
        self.optimizer.step()
        return {name: value.detach() for name, value in losses.items()}

    def _pseudo(self) -> Tensor:
        """Returns the pseudo labels, (B, H, W)."""
        label, box, images = self.batch["label"], self.batch["box"], self.inputs.clone()
        scales, thresholds = (1.0, 0.5, 1.5), (self.high, self.low)
        cams, _ = self.cams.multi_scale_cam2(self.network, inputs=self.inputs, scales=scales)
        valid, _ = self.cams.cam_to_label(
            cams, label, box, self.background, *thresholds,
            ignore_mid=True, ignore_index=self.ignore,
        )  # fmt: skip
        return self.cams.refine_cams_with_bkg_v2(
            self.par, self.denormalized(images), valid, label, *thresholds, self.ignore, box
        ).long()

    @torch.no_grad()
    def copy_weights(self, ours: nn.Module) -> None:
        """Copies ToCo's weights into our network; its layers have timm's names."""
        theirs = self.network
        encoder = theirs.encoder.state_dict().items()
        weights = {key: value for key, value in encoder if not key.startswith("head.")}
        ours.backbone.network.load_state_dict(weights)
        for part in ("classifier", "aux_classifier", "decoder"):
            sources = getattr(theirs, part).parameters()
            for source, target in zip(sources, getattr(ours, part).parameters(), strict=True):
                target.copy_(source)


def _toco_modules(checkout: Path) -> list[types.ModuleType]:
    """Imports camutils, losses, imutils, optimizer, PAR and model_seg_neg."""
    _require(checkout / "model" / "model_seg_neg.py", "--toco")
    sys.path.insert(0, str(checkout))
    missing = types.ModuleType("bilateralfilter")  # its C++, always imported
    missing.bilateralfilter = missing.bilateralfilter_batch = None
    sys.modules.setdefault("bilateralfilter", missing)
    names = ("utils.camutils", "model.losses", "utils.imutils", "utils.optimizer", "model.PAR")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its models replace timm's in the registry
        return [importlib.import_module(name) for name in (*names, "model.model_seg_neg")]


def _require(path: Path, option: str = "") -> None:
    if not path.is_file():
        start = f"{option}: " if option else ""
        raise InputError(f"{start}{path}: no such file; expected a checkout of the official code")
