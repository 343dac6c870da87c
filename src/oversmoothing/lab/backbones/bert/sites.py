"""Sites for aggregators in the layers of BERT and ALBERT, as transformers implements them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oversmoothing.adapters.blocks import LayerPlaces
from oversmoothing.adapters.calls import Current, sentences
from oversmoothing.adapters.site import AfterModule, BeforeModule
from oversmoothing.adapters.sites import Sites
from oversmoothing.aggregators.base import Context

MIXING = ("query", "key", "value")


class Padding(Current):
    """The padding mask of the current batch, which all layers of a network share.

    ContraNorm's code for language has no mask. Padding takes part in the aggregation there, so the
    result for a sentence depends on the other sentences of the batch. With ``masked``, no
    aggregator sees padding.

    Args:
        masked: whether to hide padding from aggregators.
    """

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked = masked

    def begin(self, mask: Tensor) -> None:
        """Sets the mask of a new batch, (B, N): true for tokens, false for padding after them."""
        self.enter(sentences(mask) if self.masked else None, torch.is_grad_enabled())


def equip(
    layer: nn.Module,
    layout: LayerPlaces,
    sites: Sites,
    positions: Sequence[str],
    context: Context,
    padding: Padding,
) -> None:
    """Puts new instances of the aggregators into a layer; without aggregators it does not change.

    Args:
        layer: of transformers.
        layout: of the layer.
        sites: the aggregators.
        positions: places of the aggregators of the site after; every place has its own instances.
        context: of every aggregator.
        padding: of the network.
    """
    from oversmoothing.adapters.hf import InsideFunction, InsteadOfFunction

    attention = layer.get_submodule(layout.attention)
    dim = attention.query.in_features
    if sites.has("inside"):
        inside = sites.build("inside", dim // attention.num_attention_heads)
        InsideFunction(inside, context, padding).attach(attention)
    if sites.has("instead"):
        InsteadOfFunction(sites.build("instead", dim), context, padding).attach(attention)
        for name in (*(f"{layout.attention}.{part}" for part in MIXING), layout.projection):
            layer.set_submodule(name, nn.Identity())
    if sites.has("after"):
        places = [layout.places[position] for position in positions]
        for place in sorted(places, key=lambda place: -place.module.count(".")):
            kind = BeforeModule if place.before else AfterModule
            site = kind(sites.build("after", dim), context, padding)
            site.attach(layer.get_submodule(place.module))
