"""Places for aggregators in the models of transformers."""

import inspect
from collections.abc import Iterable
from functools import cache, partial
from inspect import signature
from typing import Any

from torch import Tensor, nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, PreTrainedModel

from oversmoothing.adapters.attention import in_windows
from oversmoothing.adapters.blocks import TEXT_LAYERS, Asked, Choice, Place, tokens_first, windows
from oversmoothing.adapters.calls import Capture, Current, Sentences
from oversmoothing.adapters.hf_functions import FUNCTIONS, InsideFunction, of_file, with_sinks
from oversmoothing.adapters.masks import sentences
from oversmoothing.adapters.prefix import prefix_of
from oversmoothing.adapters.site import AfterModule, BeforeModule, Placed, Site, channels, width
from oversmoothing.adapters.sites import SHOWN, VALUES, Sites, scale_branches
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

IMAGES = {"image", "video"}  # inputs of models whose tokens see each other
ADDS_INPUTS = True  # every block adds its input to its branches
READS_MASKS = True  # from the arguments of the models around the places
MLPS = ("mlp", "feed_forward", "ffn")
PLACES = ("norms", "branches", *{place: None for layout in TEXT_LAYERS for place in layout.places})
MIXING_NORMS = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
)


class SeveralImages:
    """The tokens of several images in one sequence, which cannot be told apart."""

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Raises InputError, since the aggregator would mix the images."""
        raise InputError(
            "model: it gets several images in one sequence, which a method after the mixing "
            "cannot tell apart; give one image at a time, or apply a method inside, such as "
            "centered"
        )


def of_text(name: str, given: dict[str, Any]) -> Sentences | None:
    """Reads the argument ``name``, a padding mask (B, N)."""
    return sentences(given.get(name))


def of_patches(name: str, given: dict[str, Any]) -> Sentences | None:
    """Reads the argument ``name``, a mask of patches (B, N) or (B, rows, columns)."""
    mask = given.get(name)
    return sentences(mask if mask is None else mask.flatten(1))


def of_sequence(name: str, given: dict[str, Any]) -> SeveralImages | None:
    """Reads the argument ``name``, the sizes of all images of a sequence, one row each."""
    sizes = given.get(name)
    return SeveralImages() if sizes is not None and len(sizes) > 1 else None


def of_images(name: str, given: dict[str, Any]) -> None:
    """Returns None: the patches of an image are one group."""


READERS = {  # arguments that tell the groups of tokens; the first that a model takes is read
    "attention_mask": of_text,
    "pixel_attention_mask": of_patches,
    "patch_attention_mask": of_patches,
    "image_sizes": of_sequence,
    "grid_thw": of_sequence,
    "pixel_values": of_images,
}


def place(asked: Asked) -> list[Placed]:
    """Builds new sites for the blocks.

    Args:
        asked: its ``where`` is the place of aggregators of the site after. It is a place of
            ``TEXT_LAYERS``; or ``norms``, before every norm of a block, the default for other
            layers; or ``branches``, after attention and MLP, the default of aggregators that scale
            branches.

    Raises:
        InputError: the blocks lack such a place, or an attention through the interface.
    """
    model, choice, factories, where, current = asked
    dim = channels(next(iter(choice.blocks.values())), factories)
    where = where or ("branches" if scale_branches(factories, dim) else None)
    placed: list[Placed] = []
    for name, block in choice.blocks.items():
        attentions, wide = _attentions(block), _width(block)
        dim = channels(block, factories) and wide
        sites = Sites(
            factories,
            dim,
            type(model).__name__,
            ("inside", "after", *([] if windows(block) else [VALUES, SHOWN])),
        )
        is_text = any(layout.fits(block) for layout in TEXT_LAYERS)  # begins with CLS
        context = Context(prefix=prefix_of(model, name) or int(is_text))
        if sites.has("inside") and windows(block):
            placed.append(in_windows(block, sites.build("inside", wide), context))
        elif sites.has("inside"):
            for attention in _checked(attentions, name, choice):
                sizes = {"heads": _heads(attention), "channels": wide}
                inside = sites.build("inside", _head_channels(attention), **sizes)
                masked = all(aggregator.can_be_causal for aggregator in inside)
                known = (attention.config._attn_implementation or "sdpa") in FUNCTIONS
                site = InsideFunction(inside, context, None if masked and known else current)
                site.causal = None if known else is_causal(model, block)
                placed.append(Placed(attention, site))
        if sites.has("after"):
            for place in _places(block, attentions, where, wide):
                module = block.get_submodule(place.module)
                kind = BeforeModule if place.before else AfterModule
                site = kind(sites.build("after", dim), context, current)
                _require_batch_first(name, block, site)
                if _is_norm(module, wide):
                    site.width = wide  # a norm may have no weight that tells it
                placed.append(Placed(module, site))
    return placed


def _require_batch_first(name: str, block: nn.Module, site: Site) -> None:
    if tokens_first(block) and not site.tokenwise:
        raise InputError(
            f"model: tokens of {name} ({type(block).__name__}) are (N, B, C); give where= as a "
            "pattern of module names, with layout=NBC"
        )


def is_causal(model: nn.Module, part: nn.Module) -> bool | None:
    """Returns whether tokens in a part of a model see only earlier ones; None if unknown."""
    owner = _innermost(model, part)
    config, names, attentions = getattr(owner, "config", None), _names_in(owner), _attentions(owner)
    both_ways = "use_bidirectional_attention" in names and config.use_bidirectional_attention
    if getattr(config, "is_causal", True) is False or both_ways is True:
        return False
    flags = {getattr(attention, "is_causal", None) for attention in attentions}
    known = bool(attentions) or type(config) in MODEL_FOR_MASKED_LM_MAPPING
    if any("causal_mask" in name for name in names):
        decides = "is_decoder" in names and not getattr(config, "is_decoder", True)
        other = "create_bidirectional_mask" in names  # for itself, or for the output of an encoder
        if any(flags) or not (other or decides):
            return True
        return False if decides and known else None
    only = _has_only_causal_masks(owner)
    if any(flags):
        return True if only else None
    takes_mask = "attention_mask" in signature(owner.forward).parameters
    if only and takes_mask and attentions and flags != {False}:
        return None
    given = getattr(owner, "input_modalities", "text")
    images = {given} if isinstance(given, str) else set(given)
    return False if known or images <= IMAGES else None


def readers(model: nn.Module, names: Iterable[str], current: Current) -> list[Placed]:
    """Returns the hooks that read padding masks, at the innermost models around some modules.

    Raises:
        InputError: the model is a list of layers, whose call no hook sees.
    """
    owners: dict[str, Placed] = {}
    if isinstance(model, nn.ModuleList | nn.ModuleDict):
        raise InputError(
            f"model: a {type(model).__name__} gets no attention mask, which the method needs; give "
            "the model around it, and choose among its blocks with blocks="
        )
    for name, owner in model.named_modules():  # outer ones first
        if owner is not model and not isinstance(owner, PreTrainedModel):
            continue
        # These audio models shorten their mask to one entry for each token of their encoder.
        shortens = hasattr(owner, "_get_feature_vector_attention_mask")
        reader = getattr(owner, "encoder", owner) if shortens else owner
        takes = signature(reader.forward).parameters
        if known := [argument for argument in READERS if argument in takes]:
            reads = Capture(current, reader, partial(READERS[known[0]], known[0]))
            inner = [n for n in names if f"{n}.".startswith(f"{name}." if name else "")]
            owners |= dict.fromkeys(inner, Placed(reader, reads))
    return list({id(place.module): place for place in owners.values()}.values())


def _innermost(model: nn.Module, part: nn.Module) -> nn.Module:
    """Returns the innermost model of transformers around a part; the part itself if none is."""
    owners = [m for m in model.modules() if isinstance(m, PreTrainedModel)]
    around = (m for m in reversed(owners) if any(inner is part for inner in m.modules()))
    return next(around, part)


def _names_in(owner: nn.Module) -> set[str]:
    """Returns the names that the methods of a model use, such as those of functions."""
    kinds = [k for k in type(owner).__mro__ if issubclass(k, PreTrainedModel)][:-1]  # its own
    return {name for kind in kinds for name in _names_of(kind)}


@cache
def _names_of(kind: type) -> set[str]:
    methods = (inspect.unwrap(method) for method in vars(kind).values() if callable(method))
    return {n for m in methods for n in getattr(getattr(m, "__code__", None), "co_names", ())}


def _has_only_causal_masks(owner: nn.Module) -> bool:
    both = of_file(owner, "create_bidirectional_mask") is not None
    return not both and of_file(owner, "create_causal_mask") is not None


def _attentions(block: nn.Module) -> list[nn.Module]:
    """Returns the modules of a block that compute self-attention with an attention function."""
    return [module for name, module in block.named_modules() if _is_self_attention(name, module)]


def _is_self_attention(name: str, module: nn.Module) -> bool:
    kind = type(module).__name__
    by_function = hasattr(module, "config") and of_file(module, "ALL_ATTENTION_FUNCTIONS")
    if "Attention" not in kind or not by_function:
        return False
    projects = any(map(_is_linear, module.children()))  # no wrapper
    crosses = name.endswith(("encoder_attn", "EncDecAttention"))
    return projects and not crosses and "cross" not in f"{name}{kind}".lower()


def _is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear layer, also one that is quantised, or wrapped as by LoRA."""
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor):
        return weight.dim() == 2
    foreign = not type(module).__module__.startswith("transformers.")
    return hasattr(module, "out_features") or foreign and any(map(_is_linear, module.children()))


def _calls_function(attention: nn.Module) -> bool:
    """Whether an attention calls an attention function, which others in its file may do alone."""
    return any("ALL_ATTENTION_FUNCTIONS" in _names_of(kind) for kind in type(attention).__mro__)


def _checked(attentions: list[nn.Module], name: str, choice: Choice) -> list[nn.Module]:
    attentions = list(filter(_calls_function, attentions))
    if not attentions:
        blocks = enumerate(choice.every.values())
        others = [i for i, block in blocks if any(map(_calls_function, _attentions(block)))]
        raise InputError(
            f"model: {name} ({type(choice.blocks[name]).__name__}) has no attention that goes "
            "through transformers' AttentionInterface; it offers only: after"
            + f"; the blocks with such an attention are blocks={others}"
            * bool(others)
        )
    for attention in attentions:
        if isinstance(getattr(attention, "sinks", None), Tensor):
            raise InputError(with_sinks(attention))
    return attentions


def _heads(attention: nn.Module) -> int:
    found = (getattr(attention, name, None) for name in ("num_heads", "num_attention_heads"))
    return next((n for n in found if isinstance(n, int)), None) or _of_config(attention)


def _head_channels(attention: nn.Module) -> int:
    for name in ("head_dim", "attention_head_size", "key_value_proj_dim"):
        if isinstance(size := getattr(attention, name, None), int):
            return size
    return _of_config(attention, "hidden_size") // _heads(attention)


def _of_config(attention: nn.Module, name: str = "num_attention_heads") -> int:
    if isinstance(size := getattr(attention.config, name, None), int):
        return size
    raise InputError(
        f"model: {type(attention).__name__} does not tell its {name}; choose a method that acts "
        "after the mixing"
    )


def _places(
    block: nn.Module, attentions: list[nn.Module], where: str | None, dim: int
) -> list[Place]:
    """Returns the places that ``where`` means in a block with tokens of ``dim`` channels."""
    named = next((layout.places for layout in TEXT_LAYERS if layout.fits(block)), {})
    place = where or ("attention_sum" if named else "norms")
    if place in named:
        return [named[place]]
    if place == "branches":
        return [named["projection"], named["ffn"]] if named else _branches(block, attentions)
    heads = {id(part) for attention in attentions for part in attention.modules()}
    norms: list[Place] = []
    for name, module in block.named_modules():  # a module comes before those inside it
        inside = any(name.startswith(f"{norm.module}.") for norm in norms)
        if not inside and id(module) not in heads and _is_norm(module, dim):
            norms.append(Place(name, before=True))
    if not norms and where in (None, "norms"):
        raise InputError(
            f"where: {type(block).__name__} has no norm of tokens to act before; give where= as a "
            "pattern of names of modules that return tokens (B, N, C)"
        )
    if place != "norms":
        offered = [*named, *(["norms"] if norms else [])]
        raise InputError(
            f"where: expected one of {', '.join(offered) or 'no names'}, or a pattern of module "
            f"names, got {where!r}"
        )
    return norms


def _branches(block: nn.Module, attentions: list[nn.Module]) -> list[Place]:
    """Returns the places after the attention and the MLP of a block."""
    names = [name for name, child in block.named_children() if child in attentions or name in MLPS]
    if len(names) != 2:
        raise InputError(
            f"where: the branches of {type(block).__name__} are not known; give where= as a "
            "pattern of names of the modules whose outputs are added, such as layers.*.mlp"
        )
    return [Place(name, before=False) for name in names]


def _width(block: nn.Module) -> int:
    """Returns the channels of a block's tokens: of its own norms, not of those inside a mixer."""
    weights = [getattr(child, "weight", None) for child in block.children() if _names_norm(child)]
    known = [len(w) for w in weights if isinstance(w, Tensor) and w.dim() == 1]
    return known[-1] if known else width(block)


def _names_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _is_norm(module: nn.Module, dim: int) -> bool:
    """Whether a module normalises tokens of ``dim`` channels and does nothing else.

    BatchNorm gets channels before tokens, or the tokens of all samples in one row. Norms inside a
    mixer (Mamba) may have other channels.
    """
    if isinstance(module, MIXING_NORMS):
        return False
    own = [m for m in module.modules() if m is module or [*m.parameters(recurse=False)]]
    weight = getattr(module, "weight", None)
    return all(map(_names_norm, own)) and (weight is None or weight.numel() == dim)
