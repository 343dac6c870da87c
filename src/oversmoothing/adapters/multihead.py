"""Places for aggregators at ``torch.nn.MultiheadAttention``, as in ``nn.TransformerEncoder``.

Inside it, its products are computed here, by torch's fused attention; its parameters, masks and
dropout stay.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.attention import InsideAttention, Swapped, pattern_of, subclass
from oversmoothing.adapters.blocks import Asked
from oversmoothing.adapters.calls import Capture
from oversmoothing.adapters.masks import require_shown
from oversmoothing.adapters.prefix import prefix_of
from oversmoothing.adapters.site import AfterModule, Placed
from oversmoothing.adapters.sites import SHOWN, VALUES, Sites, scale_branches
from oversmoothing.aggregators.base import PLAIN, Context
from oversmoothing.errors import InputError

ADDS_INPUTS = True  # every block adds its input to its branches
CROSS = ("multihead_attn", "encoder_attn")  # names of attention to other tokens, beside "cross"
BRANCHES = ("multihead_attn", "linear2")  # of torch's layers, beside the self-attention


class Multihead(Swapped):
    """An attention with aggregators inside; the weights, if asked for, are computed apart."""

    inside: "InsideMultihead"

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.dim() == 2:
            options = need_weights, attn_mask, average_attn_weights, is_causal
            return self._alone((query, key, value), key_padding_mask, *options)
        _require_batch(query)
        _require_mask(attn_mask, is_causal)
        unfit = [type(own).__name__ for own in self.inside if not own.can_be_causal]
        require_shown(unfit, {"attn_mask": attn_mask, "is_causal": is_causal})
        weights = None
        if need_weights:
            options = key_padding_mask, True, attn_mask, average_attn_weights, is_causal
            _, weights = super().forward(query, key, value, *options)
        given = [x if self.batch_first else x.transpose(0, 1) for x in (query, key, value)]
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in self._of(given))
        mask = _merged(attn_mask, key_padding_mask, q)
        dropout = self.dropout if self.training else 0.0
        v = self.inside.before(v)
        mixed = self.inside.product(q, k, v, mask, dropout)
        mixed = self.inside.mix(mixed, v, mask, causal=False)
        out = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return out if self.batch_first else out.transpose(0, 1), weights

    def _alone(
        self, given: tuple[Tensor, ...], padding: Tensor | None, *options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Attends in one sequence without a batch, (N, C)."""
        if self.inside.reads_tokens:
            self.inside.held.set(given[0][None])
        axis = 0 if self.batch_first else 1
        batch = [x.unsqueeze(axis) for x in given]
        padding = None if padding is None else padding[None]
        out, weights = self.forward(*batch, padding, *options)
        return out.squeeze(axis), None if weights is None else weights.squeeze(0)

    def _of(self, given: list[Tensor]) -> list[Tensor]:
        """Returns queries, keys and values."""
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [F.linear(*arguments) for arguments in zip(given, weights, biases)]


def _merged(mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
    """Returns the mask of queries and keys with the padding, added to the scores; None if no mask.

    Shapes: mask (N_q, N) or (B·heads, N_q, N), padding (B, N) -> (B or 1, heads or 1, N_q or 1, N).
    """
    found = []
    if mask is not None:
        found.append(mask.unflatten(0, q.shape[:2]) if mask.dim() == 3 else mask[None, None])
    if padding is not None:
        found.append(padding[:, None, None])
    added = [_scores(own, q) for own in found]
    return sum(added[1:], added[0]) if added else None


def _scores(mask: Tensor, q: Tensor) -> Tensor:
    """Converts a mask that is true for what is hidden to what is added to the scores."""
    if mask.dtype != torch.bool:
        return mask.to(q.dtype)
    return torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, -torch.inf)


def _require_batch(query: Tensor) -> None:
    if query.is_nested or query.dim() != 3:
        raise InputError(
            "model: MultiheadAttention gets a nested tensor, which aggregators cannot read; build "
            "nn.TransformerEncoder with enable_nested_tensor=False, and give (B, N, C)"
        )


def _require_mask(attn_mask: Tensor | None, is_causal: bool) -> None:
    """Checks that a causal call has the mask of its order, as torch does."""
    if is_causal and attn_mask is None:
        raise InputError(
            "attn_mask: is_causal=True tells only what the mask is; give it, for example by "
            "nn.Transformer.generate_square_subsequent_mask"
        )


class InsideMultihead(InsideAttention):
    """Acts on the product of M and V in every head."""

    def connect(self, module: nn.Module) -> None:
        module.__class__ = subclass(type(module), Multihead)
        # A hook keeps nn.TransformerEncoderLayer from a path that does not call its attention.
        self.handles = [module.register_forward_pre_hook(_unfused)]


def _unfused(module: nn.Module, args: tuple) -> None:
    """Does nothing."""


class Unnested(Capture):
    """Keeps torch's encoder from nested tensors, which aggregators cannot read."""

    def __init__(self) -> None:
        """Reads nothing."""

    def attach(self, module: nn.Module) -> None:
        module.use_nested_tensor = False
        self.handles = [module.register_forward_pre_hook(self, with_kwargs=True)]

    def detach(self, module: nn.Module) -> None:
        super().detach(module)
        module.use_nested_tensor = True

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        """Does nothing; the hook is how ``remove`` finds this."""


def unnested(model: nn.Module, placed: Iterable[Placed]) -> list[Placed]:
    """Returns what keeps the encoders around some places from nested tensors."""
    at = {place.module for place in placed}
    encoders = [m for m in model.modules() if isinstance(m, nn.TransformerEncoder)]
    nests = [m for m in encoders if m.use_nested_tensor and not at.isdisjoint(m.modules())]
    return [Placed(encoder, Unnested()) for encoder in nests]


def place(asked: Asked) -> list[Placed]:
    """Builds new sites for the blocks.

    Aggregators after the mixing act on the output of the self-attention; those that scale branches
    also on the other branches of torch's own layers.

    Raises:
        InputError: ``where`` is given, a block has no self-attention or one with an additional
            token, or its branches are not known.
    """
    model, choice, factories, where, _ = asked
    if where is not None:
        raise InputError(
            f"where: {where!r} matches no module; at nn.MultiheadAttention leave it out, elsewhere "
            "give a pattern such as 'layers.*.linear2'"
        )
    placed: list[Placed] = []
    for name, block in choice.blocks.items():
        for path, attention in _attentions(name, block).items():
            dim, offered = attention.embed_dim, ("inside", "after", VALUES, SHOWN)
            sites = Sites(factories, dim, type(block).__name__, offered)
            placed += _at(attention, sites, Context(prefix=prefix_of(model, name)))
            if scale_branches(factories, dim):
                for branch in _branches(block, path):
                    placed.append(_after(branch, attention, sites))
    return placed + unnested(model, placed)


def _attentions(name: str, block: nn.Module) -> dict[str, nn.MultiheadAttention]:
    """Returns the self-attentions of a block by their names in the model."""
    found = {n: m for n, m in block.named_modules() if _is_self_attention(n, m)}
    if not found:
        raise InputError(
            f"model: {name} ({type(block).__name__}) has no nn.MultiheadAttention to itself; "
            "give where= as a pattern of names of modules whose outputs are tokens"
        )
    if any(own.bias_k is not None or own.add_zero_attn for own in found.values()):
        raise InputError(
            f"model: the attention of {name} has an additional token (add_bias_kv, "
            "add_zero_attn), which is no token of the input; build it without"
        )
    return {f"{name}.{own}".strip("."): attention for own, attention in found.items()}


def _at(attention: nn.MultiheadAttention, sites: Sites, context: Context) -> Iterator[Placed]:
    """Builds the sites inside an attention and after it."""
    if sites.has("inside"):
        sizes = {"heads": attention.num_heads, "channels": attention.embed_dim}
        inside = sites.build("inside", attention.head_dim, **sizes)
        yield Placed(attention, InsideMultihead(inside, context))
    if sites.has("after"):
        yield _after(attention, attention, sites, context)


def _after(
    module: nn.Module,
    attention: nn.MultiheadAttention,
    sites: Sites,
    context: Context = PLAIN,
) -> Placed:
    dim, layout = attention.embed_dim, None if attention.batch_first else "NBC"
    return Placed(module, AfterModule(sites.build("after", dim), context, None, layout, dim))


def _branches(block: nn.Module, name: str) -> list[nn.Module]:
    """Returns what ends the branches of torch's own layer, beside its self-attention."""
    if not isinstance(block, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        raise InputError(
            f"where: the branches of {type(block).__name__} are not known; name what ends each of "
            f"them, one call of apply for each, such as where={pattern_of(name)!r}"
        )
    return [getattr(block, own) for own in BRANCHES if hasattr(block, own)]


def _is_self_attention(name: str, module: nn.Module) -> bool:
    own = name.rpartition(".")[2]
    crosses = own in CROSS or "cross" in own.lower()
    return isinstance(module, nn.MultiheadAttention) and not crosses
