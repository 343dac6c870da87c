"""Places for aggregators in the models of transformers.

Inside the attention, aggregators use transformers' ``AttentionInterface``. The chosen attention
modules get a copy of their configuration that names ``mix`` as the attention function; ``mix``
calls the previous function. The model's own configuration does not change.
"""

import copy
import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AttentionInterface, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from oversmoothing.adapters.attention import InsideAttention, Replacing, in_windows
from oversmoothing.adapters.blocks import TEXT_LAYERS, Asked, Choice, Place, windows
from oversmoothing.adapters.calls import Capture, Current, Sentences, sentences
from oversmoothing.adapters.prefix import prefix_of
from oversmoothing.adapters.site import AfterModule, BeforeModule, Placed, Site, channels, width
from oversmoothing.adapters.sites import SHOWN, VALUES, Sites, scale_branches
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

FUNCTIONS = ("sdpa", "eager")  # attention functions whose masks ``mix`` understands
ATTENTION = "oversmoothing"  # the name of ``mix`` among transformers' attention functions
IMAGES = {"image", "video"}  # inputs of models whose tokens see each other
ADDS_INPUTS = True  # every block adds its input to its branches
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


class InsideFunction(InsideAttention):
    """Acts on the product of M and V in every head of an attention of transformers.

    Attributes:
        config: the previous configuration of the attention, which names its attention function.
        causal: whether the model is causal; for functions whose masks ``mix`` does not understand.
    """

    causal: bool | None = None

    def check(self, module: nn.Module) -> None:
        """Accepts every module: a patched forward also calls the attention function."""

    def connect(self, module: nn.Module) -> None:
        self.config = module.config
        module.config = copy.copy(module.config)
        module.config._attn_implementation = {"": ATTENTION}  # leaves parts of it as they are

    def detach(self, module: nn.Module) -> None:
        module.config = self.config
        Site.detach(self, module)

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes attention by the module's own function, and applies the aggregators.

        Raises:
            InputError: the mask does not tell which values are seen, the cache is paged, the
                function selects keys, or it cannot show maps that an aggregator changes.
        """
        name = self.config._attn_implementation or "sdpa"
        if name in FUNCTIONS:
            _require_readable(attention_mask)
        else:
            self._require_known(module, name, value.shape[2], options)
        if options.get("cache") is not None:
            raise InputError("cache: aggregators cannot follow a paged cache; use model.generate")
        if options.get("indices") is not None:
            raise InputError(
                f"model: {type(module).__name__} selects its keys inside the attention "
                "function, where aggregators cannot act; choose one that acts after the attention"
            )
        function, value = _function(module, name), self.before(value)
        with self._forming(name):
            mixed, weights = function(module, query, key, value, attention_mask, **options)
        causal, N_q = options.get("is_causal"), query.shape[2]
        causal = getattr(module, "is_causal", True) if causal is None else causal
        if name not in FUNCTIONS:  # its padding is that of the model's arguments
            attention_mask, causal = None, bool(self.causal)
        elif causal := causal and attention_mask is None and N_q > 1:
            value = value[:, :, :N_q]  # a static cache ends in empty values
        mixed = self.mix(mixed.transpose(1, 2), value, attention_mask, causal)
        return mixed.transpose(1, 2).contiguous(), weights

    def _forming(self, name: str) -> AbstractContextManager:
        """Returns a context in which an attention function forms its maps if they are read."""
        if not self.reads_maps:
            return nullcontext()
        if name != "sdpa":
            raise InputError(
                f"model: attention function {name} does not show its maps to re-attention; call "
                "model.set_attn_implementation('sdpa')"
            )
        return Replacing(F.scaled_dot_product_attention, self.product)

    def _require_known(
        self, module: nn.Module, name: str, num_tokens: int, options: dict[str, Any]
    ) -> None:
        """Checks that the tokens that each token sees are known, for a function such as flash."""
        window = options.get("sliding_window") or getattr(module, "sliding_window", None)
        packed = options.get("cu_seq_lens_q") is not None
        if self.current is None or self.causal is None:
            raise InputError(
                f"model: attention function {name} has masks that aggregators cannot read; call "
                "model.set_attn_implementation before oversmoothing.apply, which then reads the "
                "model's own arguments, or choose sdpa"
            )
        if packed or (isinstance(window, int) and num_tokens > window):
            raise InputError(
                f"model: attention function {name} gets packed texts or a sliding window, which "
                "aggregators cannot read; call model.set_attn_implementation('sdpa')"
            )


class InsteadOfFunction(InsideFunction):
    """Acts instead of an attention whose query, key and value are the input of the layer."""

    name = "instead"

    def attend(self, module: nn.Module, query: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        x = query.transpose(1, 2)
        return self.act(x.flatten(2)).view(x.shape), None


def mix(module: nn.Module, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Computes attention with aggregators; an attention function for transformers.

    Shapes: query (B, heads, N_q, C), key, value (B, heads or fewer, N, C) -> (B, N_q, heads, C).
    """
    site = module.inside if hasattr(module, "inside") else module.instead
    return site.attend(module, *args, **options)


AttentionInterface.register(ATTENTION, mix)


def of_file(module: nn.Module, name: str) -> Any:
    """Returns a name defined in the file of a module's class or of a base class; None if absent."""
    homes = (vars(sys.modules[kind.__module__]) for kind in type(module).__mro__)
    return next((home[name] for home in homes if name in home), None)


def _function(module: nn.Module, name: str) -> Callable:
    """Returns the attention function of a name; ``eager`` is that of the model's own file."""
    if name != "eager":
        return ALL_ATTENTION_FUNCTIONS[name]
    return of_file(module, "eager_attention_forward")


def _require_readable(mask: Any) -> None:
    if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 4):
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"attention_mask: expected one for queries and keys, (B, 1, N_q, N), got {got}; "
            "set the attention function back to sdpa or eager"
        )


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
        attentions, dim = _attentions(block), channels(block, factories)
        sites = Sites(
            factories,
            dim,
            type(model).__name__,
            ("inside", "after", *([] if windows(block) else [VALUES, SHOWN])),
        )
        is_text = any(layout.fits(block) for layout in TEXT_LAYERS)  # begins with CLS
        context = Context(prefix=prefix_of(model, name) or int(is_text))
        if sites.has("inside") and windows(block):
            placed.append(in_windows(block, sites.build("inside", dim or width(block)), context))
        elif sites.has("inside"):
            for attention in _checked(attentions, name, choice):
                sizes = {"heads": _heads(attention), "channels": width(block)}
                inside = sites.build("inside", _head_channels(attention), **sizes)
                masked = all(aggregator.can_be_causal for aggregator in inside)
                known = (attention.config._attn_implementation or "sdpa") in FUNCTIONS
                site = InsideFunction(inside, context, None if masked and known else current)
                site.causal = None if known else is_causal(model, block)
                placed.append(Placed(attention, site))
        if sites.has("after"):
            for place in _places(block, attentions, where, dim or width(block)):
                kind = BeforeModule if place.before else AfterModule
                site = kind(sites.build("after", dim), context, current)
                placed.append(Placed(block.get_submodule(place.module), site))
    return placed


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
    """Returns the hooks that read padding masks, at the innermost models around some modules."""
    owners: dict[str, Placed] = {}
    for name, owner in model.named_modules():  # outer ones first
        if not isinstance(owner, PreTrainedModel):
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
    methods = (inspect.unwrap(m) for kind in kinds for m in vars(kind).values() if callable(m))
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


def _checked(attentions: list[nn.Module], name: str, choice: Choice) -> list[nn.Module]:
    if not attentions:
        others = [i for i, block in enumerate(choice.every.values()) if _attentions(block)]
        raise InputError(
            f"model: {name} ({type(choice.blocks[name]).__name__}) has no attention that goes "
            "through transformers' AttentionInterface; it offers only: after"
            + f"; the blocks with such an attention are blocks={others}"
            * bool(others)
        )
    for attention in attentions:
        if isinstance(getattr(attention, "sinks", None), Tensor):
            raise InputError(
                f"model: {type(attention).__name__} has attention sinks, so the rows of its matrix "
                "sum to less than 1; choose a method that acts after the mixing"
            )
    return attentions


def _heads(attention: nn.Module) -> int:
    found = (getattr(attention, name, None) for name in ("num_heads", "num_attention_heads"))
    return next((n for n in found if isinstance(n, int)), attention.config.num_attention_heads)


def _head_channels(attention: nn.Module) -> int:
    for name in ("head_dim", "attention_head_size", "key_value_proj_dim"):
        if isinstance(size := getattr(attention, name, None), int):
            return size
    return attention.config.hidden_size // attention.config.num_attention_heads


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


def _is_norm(module: nn.Module, dim: int) -> bool:
    """Whether a module normalises tokens of ``dim`` channels and does nothing else.

    BatchNorm gets channels before tokens, or the tokens of all samples in one row. Norms inside a
    mixer (Mamba) may have other channels.
    """
    if isinstance(module, MIXING_NORMS):
        return False
    own = [m for m in module.modules() if m is module or [*m.parameters(recurse=False)]]
    weight = getattr(module, "weight", None)
    named = all("norm" in type(m).__name__.lower() for m in own)
    return named and (weight is None or weight.numel() == dim)
