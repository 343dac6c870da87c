"""Sites for aggregators in the blocks of timm's vision transformers.

A pre-norm block computes ``x ← x + attention(norm1(x))`` and ``x ← x + mlp(norm2(x))``. ``Inside``
and ``Instead`` act within the attention. ``After`` acts after it or replaces LayerNorms.

.. math:: x ← after(W · join(inside(M V, V)) + b),  M = softmax(Q Kᵀ/√d) per head

or ``x ← after(instead(x))``, without the attention's parameters. x are the tokens after the block's
first norm. The result goes to LayerScale and the residual sum. The attention is fused. In a
post-norm block x are its inputs, and ``After`` acts there or on the residual sum after it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.attention import (
    InsideAttention,
    InsteadOfAttention,
    Replacing,
    share_first_values,
)
from oversmoothing.adapters.calls import Current
from oversmoothing.adapters.site import AfterModule, Placed
from oversmoothing.adapters.sites import SHOWN, SITES, VALUES, Chain, Factory, Sites
from oversmoothing.adapters.timm import NORMS
from oversmoothing.aggregators.base import Aggregator, Context
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.options import in_bf16_on_cpu

if TYPE_CHECKING:
    from timm.layers.attention import Attention


PARTS = ("qkv", "q_norm", "k_norm", "norm", "proj")  # of an attention; unused without it
PLACES = (("norm2", "norms"), ("sum",))  # beside branch: of pre-norm blocks, of post-norm blocks
After = Literal["branch", "norm2", "norms", "sum"]
T = TypeVar("T")


def equip(
    network: nn.Module, chosen: list[int], factories: list[Factory], prefix: int, after: After
) -> Current | None:
    """Puts new instances of the aggregators into the chosen blocks of a network.

    Args:
        network: with timm's pre-norm ``blocks`` and a final ``norm``, or with post-norm blocks; its
            weights are loaded.
        chosen: indices of blocks; the final norm belongs to the last block.
        factories: in the order in which the aggregators act.
        prefix: number of leading tokens that are not patches.
        after: where aggregators of the site after act. ``branch``: after the attention's
            projection, before the residual sum. ``norm2``: instead of the second LayerNorm of each
            block, thus after the attention and its residual sum, as in ContraNorm's paper.
            ``norms``: instead of every LayerNorm (two in each block and the final one), as in
            ContraNorm's code for ViTs. ``sum``, of post-norm blocks only: on the residual sum
            after the attention, before norm1; these blocks have no place norm2 or norms.

    Returns:
        What keeps the values of the first block for the others, see ``during``; None if nothing
        reads them.

    Raises:
        InputError: aggregators that exclude each other, or the blocks have no place ``after``.
    """
    if after not in ("branch", *(own := PLACES[hasattr(network.blocks[0], "sum")])):
        raise InputError(
            f"backbone.after: expected branch, {', '.join(own)}, got {after!r}; sum needs "
            "post_norm=true of a ViT, norm2 and norms need norms first"
        )
    dim = network.embed_dim
    sites = Sites(factories, dim, "a vision transformer", (*SITES, SHOWN, VALUES))
    if after != "branch":
        sites.build("instead", dim)  # unused, but keeps the random numbers of earlier versions
    for block in (network.blocks[i] for i in chosen):
        _in_attention(block.attn, sites, Context(prefix=prefix), after == "branch")
        if after == "sum" and sites.has("after"):
            AfterModule(sites.build("after", dim), Context(prefix=prefix)).attach(block.sum)
        for name in NORMS.get(after, ()):
            _replace(block, name, sites.build("after", dim), prefix)
        _freeze_unreached(block)
    if after == "norms" and len(network.blocks) - 1 in chosen:
        _replace(network, "norm", sites.build("after", dim), prefix)
    attentions = [network.blocks[i].attn for i in chosen]
    placed = [Placed(own, own.inside) for own in attentions if hasattr(own, "inside")]
    if not any(place.site.reads_values for place in placed):
        return None
    current = Current()
    share_first_values(network, placed, current)
    return current


def during(current: Current | None, blocks: Iterator[T]) -> Iterator[T]:
    """Runs the blocks as one call, in which the values of the first one are kept."""
    return blocks if current is None else _kept(current, blocks)


def _kept(current: Current, blocks: Iterator[T]) -> Iterator[T]:
    current.enter(None, torch.is_grad_enabled())
    try:
        yield from blocks
    finally:
        current.leave()


class InPlaceOfNorm(nn.Module):
    """Replaces a LayerNorm by aggregators of the site after; the residual stream stays as it is.

    The last aggregator that ends in a LayerNorm (attribute ``norm``, as in ContraNorm) gets the
    epsilon, weight and bias of the replaced one; if it learns no weight and bias, only epsilon.
    So pretrained weights keep their meaning, and ContraNorm with s = 0 does not change the network.

    Args:
        replaced: the LayerNorm.
        aggregators: in the order in which they act.
        prefix: number of leading tokens that are not patches.

    Shapes: x (B, N, C) -> (B, N, C).
    """

    def __init__(self, replaced: nn.Module, aggregators: Sequence[Aggregator], prefix: int) -> None:
        super().__init__()
        self.context = Context(prefix=prefix)
        self.aggregators = Chain(aggregators)
        own = [a.norm for a in aggregators if isinstance(getattr(a, "norm", None), nn.LayerNorm)]
        if own and isinstance(replaced, nn.LayerNorm):
            if own[-1].elementwise_affine:
                own[-1].load_state_dict(replaced.state_dict())
            own[-1].eps = replaced.eps

    def forward(self, x: Tensor) -> Tensor:
        return self.aggregators(x, self.context)


def _in_attention(attention: "Attention", sites: Sites, context: Context, after: bool) -> None:
    """Attaches new aggregators to an attention; those of the site after only if ``after``."""
    dim = attention.qkv.in_features
    if sites.has("instead"):
        InsteadOfAttention(sites.build("instead", dim), context).attach(attention)
        for name in PARTS:
            setattr(attention, name, nn.Identity())
    if sites.has("inside"):
        sizes = {"heads": attention.num_heads, "channels": dim}
        inside = sites.build("inside", attention.head_dim, **sizes)
        InsideAttention(inside, context).attach(attention)
    if after and sites.has("after"):
        AfterModule(sites.build("after", dim), context).attach(attention)


def attention_map(attention: "Attention", x: Tensor) -> Tensor | None:
    """Returns M = softmax(Q Kᵀ/√d) of every head; None if an aggregator replaces it.

    Shapes: tokens x before the attention (B, N, C) -> (B, heads, N, N).
    """
    if hasattr(attention, "instead"):
        return None
    q, k, _ = _per_head(attention, x)
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)


def _per_head(attention: "Attention", x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns Q, K and V. Shapes: (B, N, C) -> 3 × (B, heads, N, C/heads)."""
    B, N, C = x.shape
    q, k, v = attention.qkv(x).view(B, N, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    return attention.q_norm(q), attention.k_norm(k), v


def _replace(owner: nn.Module, name: str, aggregators: Chain, prefix: int) -> None:
    if len(aggregators):
        setattr(owner, name, InPlaceOfNorm(getattr(owner, name), aggregators, prefix))


def _freeze_unreached(block: nn.Module) -> None:
    """Freezes the norm before an aggregator that passes no gradient, since it cannot learn."""
    if hasattr(block, "sum"):  # post-norm: no norm stands before it
        return
    instead = getattr(block.attn, "instead", ())
    if not all(aggregator.passes_gradient for aggregator in instead):
        block.norm1.requires_grad_(False)


def attending(device: torch.device) -> contextlib.AbstractContextManager:
    """Context in which attention is computed by two products if that is faster.

    On a CPU with AVX512-BF16 and with 26 to 442 tokens, forward and backward then take 0.3 to 0.5
    of the fused kernel's time. Without gradients, in fp32, and on GPUs, the fused kernel is as fast
    or faster.
    """
    plain = in_bf16_on_cpu(device) and torch.is_grad_enabled()
    fused = F.scaled_dot_product_attention
    return Replacing(fused, _attention) if plain else contextlib.nullcontext()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Computes softmax(Q Kᵀ/√d) V; with a mask, dropout or other options by the fused kernel."""
    if attn_mask is not None or dropout_p or is_causal or options:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, **options
        )
    scores = (query * query.shape[-1] ** -0.5) @ key.mT
    return scores.softmax(dim=-1) @ value
