"""Places for aggregators in the models of transformers.

Inside attention, they act through transformers' ``AttentionInterface``: the chosen attention
modules get a copy of their configuration that names ``mix`` as their attention function, and
``mix`` calls the function that they had. The model's own configuration stays as it is.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any

from torch import Tensor, nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AttentionInterface, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from oversmoothing.adapters.attention import InsideAttention
from oversmoothing.adapters.channels import channels
from oversmoothing.adapters.choice import Choice
from oversmoothing.adapters.current import Current, capture, sentences
from oversmoothing.adapters.layouts import LAYOUTS, Place
from oversmoothing.adapters.prefix import prefix_of
from oversmoothing.adapters.site import AfterModule, BeforeModule, Placed
from oversmoothing.adapters.sites import Factory, Sites, kind_of
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

ATTENTION = "oversmoothing"  # the name of ``mix`` among transformers' attention functions
FUNCTIONS = ("sdpa", "eager")  # attention functions whose masks ``mix`` understands


class InsideFunction(InsideAttention):
    """Acts on the product of M and V in every head of an attention of transformers.

    Attributes:
        config: the configuration that the attention had.
        function: the attention function that it had.
    """

    def connect(self, module: nn.Module) -> None:
        self.config, self.function = module.config, _function(module)
        module.config = copy.copy(module.config)
        module.config._attn_implementation = {"": ATTENTION}  # leaves parts of it as they are

    def detach(self, module: nn.Module) -> None:
        module.config = self.config
        delattr(module, self.name)

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
            InputError: the values that are seen cannot be told from the mask.
        """
        _require_readable(attention_mask, options.get("cache"))
        mixed, weights = self.function(module, query, key, value, attention_mask, **options)
        causal = options.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        N_q = query.shape[2]
        causal = causal and attention_mask is None and N_q > 1
        if causal:  # a static cache has empty values behind the others
            value = value[:, :, :N_q]
        mixed = self.mix(mixed.transpose(1, 2), value, attention_mask, causal)
        return mixed.transpose(1, 2).contiguous(), weights


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


def place(
    model: nn.Module,
    choice: Choice,
    factories: Sequence[Factory],
    where: str | None,
    current: Current,
) -> list[Placed]:
    """Builds new sites for the blocks.

    Args:
        where: of aggregators of the site after: a place of ``layouts``, or ``norms``, the default
            for layers without a layout: before every norm of a block.

    Raises:
        InputError: the blocks lack such a place.
    """
    placed: list[Placed] = []
    for name, block in choice.blocks.items():
        attentions, dim = _attentions(block), channels(block, factories)
        sites = Sites(factories, dim, type(model).__name__, ("inside", "after"))
        is_text = any(layout.fits(block) for layout in LAYOUTS)  # begins with CLS
        context = Context(prefix=prefix_of(model, name) or int(is_text))
        if sites.has("inside"):
            for attention in _checked(attentions, name, block):
                inside = sites.build("inside", _head_channels(attention))
                masked = all(aggregator.can_be_causal for aggregator in inside)
                site = InsideFunction(inside, context, None if masked else current)
                placed.append(Placed(attention, site))
        if sites.has("after"):
            for place in _places(block, attentions, where):
                kind = BeforeModule if place.before else AfterModule
                site = kind(sites.build("after", dim), context, current)
                placed.append(Placed(block.get_submodule(place.module), site))
    return placed


def require(model: nn.Module, parts: Iterable[nn.Module], factories: Sequence[Factory]) -> None:
    """Checks that aggregators let no token see later ones, unless the model does.

    Raises:
        InputError: the model is causal, and an aggregator is not.
    """
    kinds = [kind_of(factory, 0) for factory in factories]
    unfit = [kind.__name__ for kind in kinds if not getattr(kind, "can_be_causal", True)]
    if unfit and any(_is_causal(model, part) for part in parts):
        raise InputError(
            f"aggregator {unfit[0]} lets a token see later ones, and {type(model).__name__} is "
            "causal, or not known to be otherwise; choose one that can be causal, for example "
            "centered or layernorm"
        )


def readers(model: nn.Module, names: Iterable[str], current: Current) -> list[Placed]:
    """Returns what reads the padding masks of the innermost models around some modules."""
    owners: dict[str, Placed] = {}
    for name, owner in model.named_modules():  # outer ones first
        reader = capture(owner, current, sentences, "attention_mask")
        if isinstance(owner, PreTrainedModel) and reader:
            inner = [n for n in names if f"{n}.".startswith(f"{name}." if name else "")]
            owners |= dict.fromkeys(inner, Placed(owner, reader))
    return list({id(place.module): place for place in owners.values()}.values())


def _is_causal(model: nn.Module, part: nn.Module) -> bool:
    """Returns whether tokens in a part of a model see only earlier ones; True if nothing tells."""
    attentions = _attentions(part)
    if any(getattr(attention, "is_causal", False) for attention in attentions):
        return True
    owners = [m for m in model.modules() if isinstance(m, PreTrainedModel)]
    reading = [m for m in owners if "attention_mask" in signature(m.forward).parameters]
    if any(map(_makes_only_causal_masks, reading)):
        return True
    masked = any(type(owner.config) in MODEL_FOR_MASKED_LM_MAPPING for owner in owners)
    return not attentions and not masked


def _makes_only_causal_masks(module: nn.Module) -> bool:
    both = _of_file(module, "create_bidirectional_mask") is not None
    return not both and _of_file(module, "create_causal_mask") is not None


def _attentions(block: nn.Module) -> list[nn.Module]:
    """Returns the modules of a block that compute self-attention with an attention function."""
    return [
        module
        for name, module in block.named_modules()
        if "Attention" in type(module).__name__
        and hasattr(module, "config")
        and _of_file(module, "ALL_ATTENTION_FUNCTIONS")
        and any(getattr(c, "weight", None) is not None and c.weight.dim() == 2
                for c in module.children())
        and "cross" not in f"{name}{type(module).__name__}".lower()
        and not name.endswith(("encoder_attn", "EncDecAttention"))
    ]  # fmt: skip


def _checked(attentions: list[nn.Module], name: str, block: nn.Module) -> list[nn.Module]:
    if not attentions:
        raise InputError(
            f"model: {name} ({type(block).__name__}) has no attention that goes through "
            "transformers' AttentionInterface; it offers only: after"
        )
    for attention in attentions:
        if (function := attention.config._attn_implementation) not in FUNCTIONS:
            raise InputError(
                f"model: attention function {function} has masks that aggregators cannot read; "
                "call model.set_attn_implementation('sdpa') first"
            )
    return attentions


def _require_readable(mask: Any, cache: Any) -> None:
    if cache is not None:
        raise InputError("cache: aggregators cannot follow a paged cache; use model.generate")
    if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 4):
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"attention_mask: expected one for queries and keys, (B, 1, N_q, N), got {got}; "
            "set the attention function back to sdpa or eager"
        )


def _head_channels(attention: nn.Module) -> int:
    for name in ("head_dim", "attention_head_size", "key_value_proj_dim"):
        if isinstance(size := getattr(attention, name, None), int):
            return size
    return attention.config.hidden_size // attention.config.num_attention_heads


def _places(block: nn.Module, attentions: list[nn.Module], where: str | None) -> list[Place]:
    """Returns the places that ``where`` means in a block."""
    named = next((layout.places for layout in LAYOUTS if layout.fits(block)), {})
    where = where or ("attention_sum" if named else "norms")
    if where in named:
        return [named[where]]
    heads = {id(part) for attention in attentions for part in attention.modules()}
    norms = [
        Place(name, before=True)
        for name, module in block.named_modules()
        if "norm" in type(module).__name__.lower() and id(module) not in heads
    ]
    if where != "norms" or not norms:
        offered = [*named, *(["norms"] if norms else [])]
        raise InputError(
            f"where: expected one of {', '.join(offered)}, or a pattern of module names, got "
            f"{where!r}"
        )
    return norms


def _function(module: nn.Module) -> Callable:
    """Returns the attention function of a module; every model has an eager one of its own."""
    name = module.config._attn_implementation or "sdpa"
    if name != "eager":
        return ALL_ATTENTION_FUNCTIONS[name]
    return _of_file(module, "eager_attention_forward")


def _of_file(module: nn.Module, name: str) -> Any:
    """Returns a name in the file that defines the class of a module, or a base; None without it."""
    homes = (vars(sys.modules[kind.__module__]) for kind in type(module).__mro__)
    return next((home[name] for home in homes if name in home), None)
