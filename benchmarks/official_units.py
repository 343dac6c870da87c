"""Pairs of units and layers: those of official codes, from checkouts of the user, and ours.

github.com/XiaLiPKU/EMANet, MenghaoGuo/EANet, PKU-ML/ContraNorm. Only one class of a file is run, so
other imports of the file, such as old versions of packages, are not needed.
"""

import ast
import math
from argparse import Namespace
from collections.abc import Callable
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

SLOTS = 64  # bases of EMANet, memory of EANet
Form = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Pair:
    """Two implementations of a function, with the same weights.

    Args:
        theirs, ours: modules.
        shape: of an input without the batch dimension.
    """

    theirs: nn.Module
    ours: nn.Module
    shape: tuple[int, ...]

    def forms(self) -> dict[str, Form]:
        """Tensor -> tensor."""
        theirs, ours = self.theirs, self.ours
        alone = isinstance(ours, Unit)
        return {
            "ours": ours if alone else lambda x: ours(x, Context()),
            "official": lambda x: _tensor(theirs(x)),
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
    pairs = zip((ours.query, ours.key, ours.value, ours.proj), _linears(theirs), strict=True)
    for layer, own in pairs:
        layer.load_state_dict(own.state_dict())
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


def one_class(path: Path, name: str, **known: Any) -> type[nn.Module]:
    """Runs a class of a file with only torch, nn, F, math and the given names; returns the class.

    Raises:
        InputError: the file does not exist or does not have the class.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkout of the official code")
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


def _linears(module: nn.Module) -> list[nn.Module]:
    return [module.trans_dims, module.linear_0, module.linear_1, module.proj]


def _tensor(found: Tensor | tuple[Tensor, ...]) -> Tensor:
    return found[0] if isinstance(found, tuple) else found
