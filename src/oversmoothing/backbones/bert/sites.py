"""Sites for aggregators in the layers of BERT and ALBERT, as transformers implements them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.sites import Chain, Sites
from oversmoothing.aggregators.base import Aggregator, Context

ATTENTION = "oversmoothing"  # the name of ``mix`` among transformers' attention functions
MIXING = ("query", "key", "value")


class Place(NamedTuple):
    """A place directly before or directly after a module of a layer."""

    module: str
    before: bool


class Layout(NamedTuple):
    """Names of the modules of a layer: self-attention, its output projection, and the places."""

    attention: str
    projection: str
    places: Mapping[str, Place]


class Padding:
    """Applies aggregators to a batch of sentences with padding; all layers of a network share it.

    ContraNorm's code for language has no mask: padding takes part in the aggregation, so the
    result for a sentence depends on the other sentences of the batch. With ``masked``, aggregators
    see sentences of one length at a time, each without its padding.

    Args:
        masked: whether to hide padding from aggregators.
        prefix: number of leading tokens that are not words (CLS).
    """

    def __init__(self, masked: bool, prefix: int) -> None:
        self.masked, self.context = masked, Context(prefix=prefix)
        self.groups: list[tuple[Tensor, int]] = []
        self.back: Tensor | None = None

    def begin(self, mask: Tensor) -> None:
        """Sets the mask of a new batch, (B, N): true for tokens, false for padding after them."""
        self.groups = []
        if self.masked and not mask.all():
            lengths = mask.sum(dim=1)
            order = lengths.argsort(stable=True)
            found, counts = lengths.unique(return_counts=True)
            self.groups = list(zip(order.split(counts.tolist()), found.tolist()))
            self.back = order.argsort()

    def apply(self, aggregator: Aggregator | Chain, *tensors: Tensor) -> Tensor:
        """Applies an aggregator to tensors (B, ..., N, C); hidden padding becomes 0."""
        if not self.groups:
            return aggregator(*tensors, self.context)
        N, pieces = tensors[0].shape[-2], []
        for rows, length in self.groups:
            piece = aggregator(*(t[rows][..., :length, :] for t in tensors), self.context)
            pieces.append(F.pad(piece, (0, 0, 0, N - length)))
        return torch.cat(pieces)[self.back]


class Placed(nn.Module):
    """A module with aggregators before its first input or after its output."""

    def __init__(self, module: nn.Module, after: Chain, padding: Padding, before: bool) -> None:
        super().__init__()
        self.module, self.aggregators = module, after
        self.padding, self.before = padding, before

    def forward(self, x: Tensor, *rest: Any, **named: Any) -> Any:
        if self.before:
            return self.module(self.padding.apply(self.aggregators, x), *rest, **named)
        return self.padding.apply(self.aggregators, self.module(x, *rest, **named))


class Sited(nn.Module):
    """The aggregators inside or instead of an attention; a part of it, where ``mix`` finds them."""

    def __init__(self, inside: Chain, instead: Aggregator | None, padding: Padding) -> None:
        super().__init__()
        self.inside, self.instead, self.padding = inside, instead, padding


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
    """Computes fused attention with aggregators; an attention function for transformers.

    Shapes: query, key, value (B, heads, N, C/heads) -> (B, N, heads, C/heads).
    """
    sited: Sited = module.sited
    if sited.instead is not None:  # query, key and value are the layer's input, see ``equip``
        x = query.transpose(1, 2)
        return sited.padding.apply(sited.instead, x.flatten(2)).view(x.shape), None
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return sited.padding.apply(sited.inside, mixed, value).transpose(1, 2), None


def equip(
    layer: nn.Module, layout: Layout, sites: Sites, positions: Sequence[str], padding: Padding
) -> None:
    """Puts new instances of the aggregators into a layer; without any, the layer stays as it is.

    Args:
        layer: of transformers. With aggregators inside or instead, its network needs ``mix`` as
            attention function.
        layout: of the layer.
        sites: the aggregators.
        positions: places of the aggregators of the site after; every place has its own instances.
        padding: of the network.
    """
    attention = layer.get_submodule(layout.attention)
    dim = attention.query.in_features
    if sites.has("inside", "instead"):
        inside = sites.build("inside", dim // attention.num_attention_heads)
        attention.sited = Sited(inside, sites.instead(dim), padding)
    if sites.has("instead"):
        for name in (*(f"{layout.attention}.{part}" for part in MIXING), layout.projection):
            layer.set_submodule(name, nn.Identity())
    if sites.has("after"):
        places = [layout.places[position] for position in positions]
        # Inner modules first: wrapping a module renames its parts.
        for place in sorted(places, key=lambda place: -place.module.count(".")):
            wrapped = layer.get_submodule(place.module)
            placed = Placed(wrapped, sites.build("after", dim), padding, place.before)
            layer.set_submodule(place.module, placed)
