"""Places for aggregators in the layers of BERT and ALBERT, as transformers has them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator, make, require_sites
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.backbones.bert.padding import Padding
from oversmoothing.errors import InputError

SITES = ("inside", "after", "instead")
ATTENTION = "oversmoothing"  # the name of ``mix`` among transformers' attention functions
MIXING = ("query", "key", "value")


class Place(NamedTuple):
    """Right before or right behind a module of a layer."""

    module: str
    before: bool


class Layout(NamedTuple):
    """Names of a layer's modules: self-attention, its output projection, and the places."""

    attention: str
    projection: str
    places: Mapping[str, Place]


class Placed(nn.Module):
    """A module with aggregators before its first input, or behind its output."""

    def __init__(
        self, module: nn.Module, aggregators: list[Aggregator], padding: Padding, before: bool
    ) -> None:
        super().__init__()
        self.module, self.aggregators = module, nn.ModuleList(aggregators)
        self.padding, self.before = padding, before

    def forward(self, x: Tensor, *rest: Any, **named: Any) -> Any:
        if self.before:
            return self.module(self._acted(x), *rest, **named)
        return self._acted(self.module(x, *rest, **named))

    def _acted(self, x: Tensor) -> Tensor:
        for aggregator in self.aggregators:
            x = self.padding.apply(aggregator, x)
        return x


class Sited(nn.Module):
    """What acts inside or instead of an attention; a part of it, for ``mix`` to find."""

    def __init__(
        self, inside: list[Aggregator], instead: Aggregator | None, padding: Padding
    ) -> None:
        super().__init__()
        self.inside, self.instead, self.padding = nn.ModuleList(inside), instead, padding


def mix(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """An attention function for transformers, fused, with aggregators.

    Shapes: query, key, value (B, heads, N, C/heads) -> (B, N, heads, C/heads).
    """
    sited: Sited = module.sited
    if sited.instead is not None:  # the three are the layer's input, see ``equip``
        x = query.transpose(1, 2)
        return sited.padding.apply(sited.instead, x.flatten(2)).view(x.shape), None
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    for aggregator in sited.inside:
        mixed = sited.padding.apply(aggregator, mixed, value)
    return mixed.transpose(1, 2), None


def equip(
    layer: nn.Module,
    layout: Layout,
    factories: list[Callable[..., Aggregator]],
    positions: Sequence[str],
    padding: Padding,
) -> bool:
    """Puts new instances of every aggregator into a layer; without any it stays as it is.

    Args:
        layer: of transformers.
        layout: of that layer.
        factories: in the order in which they act.
        positions: places of those that act after the mixing, an instance at each.
        padding: of the network.

    Returns:
        Whether the network needs ``mix`` as its attention function.

    Raises:
        InputError: aggregators that exclude one another.
    """
    attention = layer.get_submodule(layout.attention)
    dim, heads = attention.query.in_features, attention.num_attention_heads
    built = [_made(factory, dim, dim // heads) for factory in factories]
    require_sites(built, SITES, "bert")
    acting = [(f, a) for f, a in zip(factories, built) if not isinstance(a, NoAggregator)]
    inside, instead = ([a for _, a in acting if a.site == site] for site in ("inside", "instead"))
    if len(instead) > 1 or (instead and inside):
        raise InputError(
            "aggregator: one that acts instead of the mixing leaves no mixing to another one "
            "inside or instead of it; drop one of the two"
        )
    if inside or instead:
        attention.sited = Sited(inside, instead[0] if instead else None, padding)
    if instead:
        for name in (*(f"{layout.attention}.{part}" for part in MIXING), layout.projection):
            layer.set_submodule(name, nn.Identity())
    after = [f for f, a in acting if a.site == "after"]
    _place(layer, layout, positions, lambda: [make(f, dim) for f in after], padding)
    return bool(inside or instead)


def _place(
    layer: nn.Module,
    layout: Layout,
    positions: Sequence[str],
    instances: Callable[[], list[Aggregator]],
    padding: Padding,
) -> None:
    """Wraps modules at the positions, inner ones first: a wrapped module's parts change names."""
    places = [layout.places[position] for position in positions]
    for place in sorted(places, key=lambda place: -place.module.count(".")):
        if acting := instances():
            placed = Placed(layer.get_submodule(place.module), acting, padding, place.before)
            layer.set_submodule(place.module, placed)


def _made(factory: Callable[..., Aggregator], dim: int, head_dim: int) -> Aggregator:
    """Inside, an aggregator sees the channels of one head."""
    made = make(factory, dim)
    return make(factory, head_dim) if made.site == "inside" else made
