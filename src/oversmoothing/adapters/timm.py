"""Places for aggregators in the pre-norm blocks of timm's vision transformers.

A block computes ``x ← x + attention(norm1(x))`` and ``x ← x + mlp(norm2(x))``.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from inspect import signature
from itertools import islice
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import nn

from oversmoothing.adapters.attention import (
    InsideAttention,
    InsteadOfAttention,
    in_windows,
)
from oversmoothing.adapters.blocks import Asked, Choice, windows
from oversmoothing.adapters.calls import Capture, Current, Sentences
from oversmoothing.adapters.masks import sentences
from oversmoothing.adapters.prefix import prefix_of
from oversmoothing.adapters.site import AfterModule, BeforeModule, Placed, linear_in
from oversmoothing.adapters.sites import SHOWN, SITES, VALUES, Factory, Sites, scale_branches
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

NORMS = {  # place -> norms of a block before which aggregators act
    "branch": (),
    "branches": (),
    "norm2": ("norm2",),
    "norms": ("norm1", "norm2"),
}
ADDS_INPUTS = True  # every block adds its input to its branches
PLACES = tuple(NORMS)
PARTS = ("attn", "attn.proj", "norm1", "norm2")
SCALES = ("ls1", "ls2", "gamma_1", "gamma_2")  # factors of the branches (LayerScale)
WHOLE = (  # attention classes that mix all tokens by torch's fused attention
    "timm.layers.attention.Attention",
    "timm.layers.attention.AttentionRope",
    "timm.models.beit.Attention",
    "timm.models.eva.EvaAttention",
    "timm.models.vision_transformer.Attention",
    "timm.models.vision_transformer_relpos.RelPosAttention",
)


def place(asked: Asked) -> list[Placed]:
    """Builds new sites for the blocks.

    Args:
        asked: its ``where`` is the place of aggregators of the site after. ``branch``, the default:
            after the attention's projection, before the residual sum. ``branches``: there and after
            the MLP, the default of aggregators that scale branches. ``norm2``: before the second
            norm of each block, thus after the attention and its residual sum, as in ContraNorm's
            paper. ``norms``: before every norm (two in each block and the final one), as in
            ContraNorm's code for ViTs.

    Raises:
        InputError: the blocks lack such a place.
    """
    model, choice, factories, where, current = asked
    dim = _channels(*next(iter(choice.blocks.items())))
    where = where or ("branches" if scale_branches(factories, dim) else "branch")
    if where not in NORMS:
        raise InputError(
            f"where: expected one of {', '.join(NORMS)}, or a pattern of module names, "
            f"got {where!r}"
        )
    groups = current if _padded(model) else None
    placed: list[Placed] = []
    for name, block in choice.blocks.items():
        offered = SITES if windows(block) else (*SITES, VALUES, SHOWN)
        sites = Sites(factories, _channels(name, block), type(model).__name__, offered)
        at = At(Context(prefix=prefix_of(model, name)), groups)
        placed += _in_block(name, block, sites, at, where)
    if where == "norms":
        placed += _at_final_norm(model, choice, factories, groups)
    return placed


class At(NamedTuple):
    """What the sites of a block know about its tokens."""

    context: Context
    groups: Current | None


def _at_final_norm(
    model: nn.Module, choice: Choice, factories: Sequence[Factory], groups: Current | None
) -> list[Placed]:
    """Builds the site before the model's final norm; none unless the last block is chosen."""
    name, block = [*choice.blocks.items()][-1]
    dim, final = _channels(name, block), getattr(model, "norm", nn.Identity())
    sites = Sites(factories, dim, type(model).__name__)
    if block is not choice.last or isinstance(final, nn.Identity) or not sites.has("after"):
        return []
    context = Context(prefix=prefix_of(model, name))
    return [Placed(final, BeforeModule(sites.build("after", dim), context, groups))]


def _in_block(name: str, block: nn.Module, sites: Sites, at: At, where: str) -> list[Placed]:
    if windows(block):
        return _in_windows(name, block, sites, at)
    placed, dim = _in_attention(name, block.attn, sites, at), _channels(name, block)
    if not sites.has("after"):
        return placed
    for module in _branches(name, block, sites) if where.startswith("branch") else ():
        if module is block.attn or where == "branches":
            placed.append(Placed(module, AfterModule(sites.build("after", dim), *at)))
    norms = [getattr(block, norm) for norm in NORMS[where]]
    return placed + [Placed(norm, BeforeModule(sites.build("after", dim), *at)) for norm in norms]


def _branches(name: str, block: nn.Module, sites: Sites) -> tuple[nn.Module, nn.Module]:
    """Returns the attention and the MLP of a block; they may be scaled already (LayerScale)."""
    scaled = any(not isinstance(getattr(block, ls, None), nn.Identity | None) for ls in SCALES)
    if scaled and scale_branches(sites.factories["after"], _channels(name, block)):
        raise InputError(
            f"blocks: {name} ({type(block).__name__}) scales its branches already; create the "
            "model with init_values=None"
        )
    return block.attn, getattr(block, "mlp", block.attn)


def readers(model: nn.Module, module_names: Iterable[str], current: Current) -> list[Placed]:
    """Returns the hook that reads padding of patches, in models with images of several sizes."""
    prefix = prefix_of(model, next(iter(module_names), ""))
    read = partial(_valid_patches, prefix)
    return [Placed(inner, Capture(current, inner, read)) for inner in _padded(model)]


def _valid_patches(prefix: int, given: dict[str, Any]) -> Sentences | None:
    """Reads ``patch_valid`` (B, N), an argument or an entry of the input ``x``."""
    inner = given.get("x")
    inside = inner.get("patch_valid") if isinstance(inner, Mapping) else None
    valid = inside if given.get("patch_valid") is None else given["patch_valid"]
    return sentences(None if valid is None else F.pad(valid, (prefix, 0), value=1))


def _padded(model: nn.Module) -> list[nn.Module]:
    """Returns the outermost module that takes images with different numbers of patches, if any."""
    found = (m for m in model.modules() if "patch_valid" in signature(m.forward).parameters)
    return [*islice(found, 1)]


def _channels(name: str, block: nn.Module) -> int:
    if missing := [part for part in PARTS if not _has(block, part)]:
        raise InputError(
            f"model: {name} ({type(block).__name__}) has no {missing[0]}, and methods need a block "
            f"with {', '.join(PARTS)}; for a method after the mixing give where= as a pattern of "
            "module names whose outputs are tokens (B, N, C), such as "
            f"where='{name.rpartition('.')[0]}.*'"
        )
    return linear_in(block.attn.proj).out_features


def _has(module: nn.Module, part: str) -> bool:
    found = reduce(lambda outer, name: getattr(outer, name, None), part.split("."), module)
    return isinstance(found, nn.Module)


def _in_windows(name: str, block: nn.Module, sites: Sites, at: At) -> list[Placed]:
    if sites.has("instead", "after"):
        raise InputError(
            f"model: {name} ({type(block).__name__}) mixes the tokens of each window apart; give "
            "where= as a pattern of module names, with layout=BHWC"
        )
    inside = sites.build("inside", linear_in(block.attn.proj).in_features)
    return [in_windows(block, inside, at.context)]


def _in_attention(name: str, attn: nn.Module, sites: Sites, at: At) -> list[Placed]:
    if not sites.has("inside", "instead"):
        return []
    kind = type(attn)
    if f"{kind.__module__}.{kind.__name__}" not in WHOLE:
        raise InputError(
            f"model: {name}.attn ({kind.__name__}) does not mix all tokens by torch's fused "
            "attention; it offers only: after"
        )
    if sites.has("inside") and not attn.fused_attn:
        raise InputError(
            f"model: {name}.attn does not call torch's fused attention (TIMM_FUSED_ATTN=0 or "
            "exportable=True); call timm.layers.set_fused_attn(True) and create the model again"
        )
    proj = linear_in(attn.proj)
    if sites.has("instead"):
        site = InsteadOfAttention(sites.build("instead", proj.out_features), *at)
    else:
        dim, sizes = proj.in_features // attn.num_heads, {"heads": attn.num_heads}
        inside = sites.build("inside", dim, **sizes, channels=proj.out_features)
        site = InsideAttention(inside, at.context)
    return [Placed(attn, site)]
