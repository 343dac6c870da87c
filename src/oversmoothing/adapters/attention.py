"""Aggregators inside or instead of an attention module that calls torch's fused attention.

The class of the module is replaced by a subclass. The module, its parameters and their names stay.
The subclass runs the module's own code and acts where that code calls
``scaled_dot_product_attention``. So dropout, masks, normalised queries, gates and rotary positions
do not change, and the attention stays fused.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Proxy
from torch.overrides import TorchFunctionMode

from oversmoothing.adapters.calls import Current
from oversmoothing.adapters.site import Placed, Site, as_leaf, input_of
from oversmoothing.adapters.sites import Chain
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

VALUES = ("qkv", "v_proj", "value")  # names of layers that compute the values
DROPOUTS = ("attn_drop", "attention_dropout", "dropout")  # names of those of an attention
HIDDEN = -9e3  # additive masks hide a value with −10⁴ or less; biases by distance are above


class SwappingSite(Site):
    """A site that replaces the class of its module."""

    def check(self, module: nn.Module) -> None:
        if "forward" in vars(module):
            raise InputError(
                f"model: the forward of a {type(module).__name__} is patched, for example by a "
                "hook of accelerate; remove the patch, and patch it again after "
                "oversmoothing.apply or oversmoothing.remove"
            )

    def detach(self, module: nn.Module) -> None:
        module.__class__ = plain_class(type(module))
        super().detach(module)


class InsideAttention(SwappingSite):
    """Acts on the product of M and V in every head.

    Attributes:
        first: what keeps the values of the first layer, the name of the stack of this layer, and
            the number of the layer in the stack; None if no aggregator reads these values.
        held: input of the layer in the running call, if an aggregator reads it.
    """

    name = "inside"
    first: tuple[Current, str, int] | None = None

    def connect(self, module: nn.Module) -> None:
        module.__class__ = subclass(type(module), Intercepting)

    def attach(self, module: nn.Module) -> None:
        super().attach(module)
        if self.reads_tokens:
            self.handles.append(module.register_forward_pre_hook(_note_tokens, with_kwargs=True))

    def product(self, *args: Any, **options: Any) -> Tensor:
        """Computes fused attention, or forms the maps for aggregators that change them."""
        if self.reads_maps:
            return _formed(self, *args, **options)
        return F.scaled_dot_product_attention(*args, **options)

    def before(self, v: Tensor) -> Tensor:
        """Returns the values to mix in place of v."""
        if not self.reads_values:
            return v
        if isinstance(v, Proxy):
            return as_leaf(self, v)
        context = self._with_first(self.context, v, "before")
        for aggregator in self:
            v = aggregator.values(v, context)
        return v

    def _with_first(self, context: Context, v: Tensor, when: str) -> Context:
        if self.first is None:
            return context
        current, stack, layer = self.first
        return replace(context, first_values=current.first_values(v, f"{when} {stack}", layer))

    def mix(
        self,
        mixed: Tensor,
        v: Tensor,
        mask: Tensor | None,
        causal: bool,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Applies the aggregators to attention that was computed with these arguments.

        Shapes: mixed (..., heads, N_q, C), v (..., heads or fewer, N, C) -> (..., heads, N_q, C).
        """
        if self.reads_tokens:
            tokens = self.held.get() if tokens is None else tokens
            self.held.set(None)
        if isinstance(mixed, Proxy):
            return as_leaf(self, mixed, v, mask, causal, tokens)
        v = v.to(mixed.dtype)
        if v.shape[:-2] != mixed.shape[:-2]:
            v = v.repeat_interleave(mixed.shape[-3] // v.shape[-3], dim=-3)
        if self.current is not None:  # the groups encode the padding, so no mask is needed
            context = replace(self.context, causal=causal, tokens=tokens)
            return self.act(mixed, v, context=self._with_first(context, v, "after"))
        context = Context(self.context.prefix, mask=seen(mask), causal=causal, tokens=tokens)
        return self(mixed, v, self._with_first(context, v, "after"))

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        """Applies every aggregator; as torch.fx calls it, see ``mix`` and ``before``."""
        if not others:
            return self.before(x)
        if isinstance(others[-1], Context):
            return super().forward(x, *others)
        return self.mix(x, *others)


class InsideWindows(SwappingSite):
    """Acts inside a block with attention over windows; the tokens of all windows are one sample.

    M is block-diagonal, and its rows sum to 1. So what an aggregator adds to all mixed tokens is
    added to the values instead: M V + γ 1 v̄ᵀ = M (V + γ 1 v̄ᵀ), with the mean v̄ over the image.

    Attributes:
        held: shape of the tokens of the running call, without channels.
    """

    name = "inside"

    def connect(self, module: nn.Module) -> None:
        module.__class__ = subclass(type(module), Windowed)
        _, project = values_in(module)
        self.handles = [project.register_forward_hook(self.shift)]

    def shift(self, module: nn.Module, args: tuple, out: Tensor) -> Tensor:
        """Shifts the values, the last C channels. Shapes: (B·windows, N, C or 3C) -> the same."""
        C, tokens = args[0].shape[-1], self.held.get()
        of_image = out[..., -C:].unflatten(0, (tokens[0], -1)).flatten(1, 2)
        if of_image.shape[:2].numel() != tokens.numel():
            raise InputError(
                f"model: {tokens[1:].numel()} tokens of an image do not fill windows, and the "
                "mean would count the padding; give images of another size"
            )
        shift = self(torch.zeros_like(of_image), of_image, self.context).view_as(out[..., -C:])
        return out + F.pad(shift, (out.shape[-1] - C, 0))


def in_windows(block: nn.Module, inside: Chain, context: Context) -> Placed:
    """Builds the site of a block with attention over windows.

    Raises:
        InputError: an aggregator does more than add to M V what depends on V alone.
    """
    if unfit := [type(aggregator).__name__ for aggregator in inside if not aggregator.adds_mean]:
        raise InputError(
            f"aggregator {unfit[0]} needs the product of M and V, which attention over windows "
            "does not show; choose centered, or a method after the mixing"
        )
    return Placed(block, InsideWindows(inside, context))


def values_in(block: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Returns the attention of a block, and its layer that computes the values (the last)."""
    found = ((m, getattr(m, n, None)) for m in block.modules() for n in VALUES)
    return next((m, layer) for m, layer in found if isinstance(layer, nn.Module))


class InsteadOfAttention(SwappingSite):
    """Replaces an attention module; its parameters stay but are not used."""

    name = "instead"

    def connect(self, module: nn.Module) -> None:
        module.__class__ = subclass(type(module), Replaced)


def seen(mask: Tensor | None) -> Tensor | None:
    """Converts a boolean or additive mask to a boolean one, true for values that are seen."""
    if mask is None or mask.dtype == torch.bool:
        return mask
    return mask > HIDDEN


class Swapped:
    """Base of the subclasses that take the place of a module's class.

    Attributes:
        plain: the class of the module.
    """

    plain: ClassVar[type[nn.Module]]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        """Pickles and copies by the plain class, since the subclass cannot be imported by name."""
        _, _, *state = super().__reduce_ex__(protocol)
        mixin = type(self).__mro__[1]
        return _blank, (self.plain, mixin), *state


class Intercepting(Swapped):
    """A module with aggregators inside its attention."""

    inside: InsideAttention

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        calls: list[None] = []
        with Replacing(F.scaled_dot_product_attention, partial(_attend, self.inside, calls)):
            output = super().forward(*args, **kwargs)
        if not calls:
            raise InputError(
                f"{self.plain.__name__} did not call torch's fused attention, so its aggregators "
                "did not act; allow fused attention, or use oversmoothing.remove"
            )
        return output


class Windowed(Swapped):
    """A block with aggregators inside its attention over windows."""

    inside: InsideWindows

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        attention, _ = values_in(self)
        drops = [getattr(attention, name) for name in DROPOUTS if hasattr(attention, name)]
        if self.training and any(getattr(drop, "p", drop) for drop in drops):
            raise InputError(
                "model: with dropout of the attention its rows do not sum to 1, so values cannot "
                "be shifted; create the model with attn_drop_rate=0 "
                "(attention_probs_dropout_prob=0 in transformers)"
            )
        self.inside.held.set(x.shape[:-1])
        return super().forward(x, *args, **kwargs)


class Replaced(Swapped):
    """A module with an aggregator instead of its attention."""

    instead: InsteadOfAttention

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = self.instead.given((x, *args), kwargs)
        if isinstance(given.get("attn_mask"), Tensor) or given.get("is_causal") is True:
            name = type(self.instead[0]).__name__
            raise InputError(
                f"attn_mask: {name} shows all tokens to each; call the model without a mask, or "
                "choose a method inside the attention, such as centered"
            )
        return self.instead.act(x)


class Replacing(TorchFunctionMode):
    """A context in which a function of torch is replaced.

    Args:
        function: of torch.
        by: called in its place, outside this context.
    """

    def __init__(self, function: Callable, by: Callable) -> None:
        super().__init__()
        self.function, self.by = function, by

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        called = self.by if function is self.function else function
        return called(*args, **(kwargs or {}))


def _attend(
    inside: InsideAttention,
    calls: list[None],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Computes attention with the aggregators; adds an entry to ``calls``."""
    calls.append(None)
    value = inside.before(value)
    mixed = inside.product(query, key, value, attn_mask, dropout_p, is_causal, **options)
    return inside.mix(mixed, value, attn_mask, is_causal)


def _formed(
    inside: InsideAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Tensor:
    """Computes softmax(Q Kᵀ · scale) V as two products; aggregators change the first."""
    if isinstance(query, Proxy):
        raise InputError("model: torch.fx cannot trace methods that change maps; use torch.export")
    H, N_q, C = query.shape[-3:]
    key, value = (x.repeat_interleave(H // x.shape[-3], dim=-3) for x in (key, value))
    scores = query * (C**-0.5 if scale is None else scale) @ key.mT
    mask = seen(attn_mask)
    if is_causal:
        mask = torch.ones(N_q, key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        added = attn_mask is not None and attn_mask.dtype != torch.bool
        scores = scores + attn_mask if added else scores.masked_fill(~mask, -torch.inf)
        blind = ~mask.any(dim=-1, keepdim=True)  # such tokens get 0, as in fused attention
        scores = scores.masked_fill(blind, 0)
    precise = torch.promote_types(scores.dtype, torch.float32)
    maps = scores.softmax(dim=-1, dtype=precise)
    if not torch.is_autocast_enabled(query.device.type):  # it leaves parameters in float32
        maps = maps.to(value.dtype)
    maps = F.dropout(maps if mask is None else maps.masked_fill(blind, 0), dropout_p)
    context = replace(inside.context, mask=mask)
    for aggregator in inside:
        maps = aggregator.maps(maps, context) if aggregator.reads_maps else maps
    return maps.to(value.dtype) @ value


def _note_tokens(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Keeps the tokens that an attention gets until its aggregators have read them."""
    x = input_of(args, kwargs)
    batch_first = getattr(module, "batch_first", True) is not False
    module.inside.held.set(x if batch_first else x.transpose(0, 1))


def pattern_of(name: str) -> str:
    """Returns the name of a module with a ``*`` for every number of a layer."""
    return re.sub(r"(?<![A-Za-z\d])\d+\b", "*", name)


def share_first_values(model: nn.Module, placed: Sequence[Placed], current: Current) -> None:
    """Numbers the attention layers of every stack that read the values of the first one.

    Raises:
        InputError: a stack has one such layer only.
    """
    sites = {id(module): site for module, site in placed if isinstance(site, InsideAttention)}
    stacks: dict[str, list[InsideAttention]] = {}
    for name, module in model.named_modules():
        if (site := sites.get(id(module))) is not None and site.reads_values:
            stacks.setdefault(pattern_of(name), []).append(site)
    for stack, layers in stacks.items():
        if len(layers) == 1:
            raise InputError(
                f"blocks: the method reads the values of the first of several layers, and {stack} "
                "is one; choose more blocks"
            )
        if any(site.current is not None for site in layers):
            raise InputError(
                "aggregator: a method that reads the values of the first layer cannot be combined "
                "with one that gets every sentence apart; apply one of them"
            )
        for number, site in enumerate(layers, start=1):
            site.first = (current, stack, number)


@cache
def subclass(kind: type[nn.Module], mixin: type[Swapped]) -> type[nn.Module]:
    """Returns the subclass of a module's class that calls aggregators; always the same one."""
    return type(kind.__name__, (mixin, kind), {"plain": kind})


def plain_class(kind: type[nn.Module]) -> type[nn.Module]:
    """Returns a class without aggregators; parametrize and fully_shard derive classes from it."""
    if "plain" in vars(kind):
        return kind.plain
    if not issubclass(kind, Swapped):
        return kind
    own = {name: v for name, v in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind.__name__, tuple(map(plain_class, kind.__bases__)), own)


def _blank(kind: type[nn.Module], mixin: type[Swapped]) -> nn.Module:
    made = subclass(kind, mixin)
    return made.__new__(made)
