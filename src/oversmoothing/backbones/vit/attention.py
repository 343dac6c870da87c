"""Attention of timm's vision transformers with places for aggregators."""

from collections.abc import Callable

import torch.nn.functional as F
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator, Context, make, require_sites
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError

SITES = ("inside", "after", "instead")
ADOPTED = ("qkv", "q_norm", "k_norm", "norm", "proj")  # the names stay, and so do state dicts


class SitedAttention(nn.Module):
    """Takes the place of a block's attention; its parameters go on being used.

    .. math:: x ← after(W · join(inside(M V, V)) + b),  M = softmax(Q Kᵀ/√d) per head

    or ``x ← after(instead(x))``, where the attention's parameters are dropped. x are the tokens
    after the block's first norm; the result is what LayerScale and the residual sum take, so
    ``after`` acts on the branch's output, behind the projection. Attention is fused, without
    dropout.

    Args:
        native: timm's attention, without gate.
        aggregators: in the order in which they act at their sites.
        prefix: leading tokens that are no patches.

    Raises:
        InputError: instead combined with inside or another instead.

    Shapes: x (B, N, C) -> (B, N, C).
    """

    def __init__(self, native: Attention, aggregators: list[Aggregator], prefix: int) -> None:
        super().__init__()
        sites = {site: [a for a in aggregators if a.site == site] for site in SITES}
        if len(sites["instead"]) > 1 or (sites["instead"] and sites["inside"]):
            raise InputError(
                "aggregator: one that acts instead of the mixing leaves no mixing to another one "
                "inside or instead of it; drop one of the two"
            )
        self.context = Context(prefix=prefix)
        self.instead = sites["instead"][0] if sites["instead"] else None
        self.inside = nn.ModuleList(sites["inside"])
        self.after = nn.ModuleList(sites["after"])
        if self.instead is None:
            self.num_heads = native.num_heads
            for name in ADOPTED:
                self.add_module(name, getattr(native, name))

    def forward(self, x: Tensor, **_: object) -> Tensor:
        """timm's block also passes a mask, which is never set for images."""
        if self.instead is None:
            x = self.proj(self.norm(self._mix(x)))
        else:
            x = self.instead(x, self.context)
        for aggregator in self.after:
            x = aggregator(x, self.context)
        return x

    def _mix(self, x: Tensor) -> Tensor:
        """Tokens mixed in every head, heads joined; q, k and v are freed on return."""
        q, k, v = _per_head(self, x)
        mixed = F.scaled_dot_product_attention(q, k, v)
        for aggregator in self.inside:
            mixed = aggregator(mixed, v, self.context)
        return mixed.transpose(1, 2).flatten(2)


def attention_map(attention: Attention | SitedAttention, x: Tensor) -> Tensor | None:
    """M = softmax(Q Kᵀ/√d) of every head, formed explicitly; None where an aggregator replaced it.

    Shapes: tokens x before the attention (B, N, C) -> (B, heads, N, N).
    """
    if getattr(attention, "instead", None) is not None:
        return None
    q, k, _ = _per_head(attention, x)
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)


def equip(block: Block, factories: list[Callable[..., Aggregator]], prefix: int) -> None:
    """Puts a new instance of every aggregator into a block; a block that gets none stays as it is.

    Args:
        block: of timm.
        factories: in the order in which they act.
        prefix: leading tokens that are no patches.

    Raises:
        InputError: aggregators that exclude one another.
    """
    dim, head_dim = block.attn.qkv.in_features, block.attn.head_dim
    built = [_made(factory, dim, head_dim) for factory in factories]
    require_sites(built, SITES, "vit")
    acting = [a for a in built if not isinstance(a, NoAggregator)]
    if acting:
        block.attn = SitedAttention(block.attn, acting, prefix)


def _per_head(attention: Attention | SitedAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V. Shapes: (B, N, C) -> 3 × (B, heads, N, C/heads)."""
    B, N, C = x.shape
    q, k, v = attention.qkv(x).view(B, N, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    return attention.q_norm(q), attention.k_norm(k), v


def _made(factory: Callable[..., Aggregator], dim: int, head_dim: int) -> Aggregator:
    """Inside, an aggregator sees the channels of one head."""
    made = make(factory, dim)
    return make(factory, head_dim) if made.site == "inside" else made
