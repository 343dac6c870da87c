"""Places for aggregators in the pre-norm blocks of timm's vision transformers.

A block computes ``x ← x + attention(norm1(x))`` and ``x ← x + mlp(norm2(x))``.
"""

from collections.abc import Iterable, Sequence

from torch import nn

from oversmoothing.adapters.attention import InsideAttention, InsteadOfAttention
from oversmoothing.adapters.choice import Choice
from oversmoothing.adapters.current import Current
from oversmoothing.adapters.prefix import prefix_of
from oversmoothing.adapters.site import AfterModule, BeforeModule, Placed
from oversmoothing.adapters.sites import Factory, Sites
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

NORMS = {"branch": (), "norm2": ("norm2",), "norms": ("norm1", "norm2")}  # acted on in a block
PARTS = ("attn", "norm1", "norm2")
WHOLE = (  # attention classes that mix all tokens by torch's fused attention
    "timm.layers.attention.Attention",
    "timm.layers.attention.AttentionRope",
    "timm.models.beit.Attention",
    "timm.models.eva.EvaAttention",
    "timm.models.vision_transformer.Attention",
    "timm.models.vision_transformer_relpos.RelPosAttention",
)


def place(
    model: nn.Module,
    choice: Choice,
    factories: Sequence[Factory],
    where: str | None,
    current: Current,
) -> list[Placed]:
    """Builds new sites for the blocks.

    Args:
        where: place of aggregators of the site after. ``branch``, the default: after the
            attention's projection, before the residual sum. ``norm2``: before the second norm of
            each block, thus after the attention and its residual sum, as in ContraNorm's paper.
            ``norms``: before every norm (two in each block and the final one), as in ContraNorm's
            code for ViTs.

    Raises:
        InputError: the blocks lack such a place.
    """
    where = _known(where or "branch")
    placed: list[Placed] = []
    for name, block in choice.blocks.items():
        sites = Sites(factories, _channels(name, block), type(model).__name__)
        placed += _in_block(name, block, sites, Context(prefix=prefix_of(model, name)), where)
    if where == "norms":
        placed += _at_final_norm(model, choice, factories)
    return placed


def _at_final_norm(model: nn.Module, choice: Choice, factories: Sequence[Factory]) -> list[Placed]:
    """Builds the site before the model's final norm; none unless the last block is chosen."""
    name, block = [*choice.blocks.items()][-1]
    dim, final = _channels(name, block), getattr(model, "norm", nn.Identity())
    sites = Sites(factories, dim, type(model).__name__)
    if block is not choice.last or isinstance(final, nn.Identity) or not sites.has("after"):
        return []
    return [Placed(final, _before(sites, dim, Context(prefix=prefix_of(model, name))))]


def _in_block(
    name: str, block: nn.Module, sites: Sites, context: Context, where: str
) -> list[Placed]:
    placed, dim = _in_attention(name, block.attn, sites, context), _channels(name, block)
    if not sites.has("after"):
        return placed
    if where == "branch":
        placed.append(Placed(block.attn, AfterModule(sites.build("after", dim), context)))
    norms = [getattr(block, norm) for norm in NORMS[where]]
    return placed + [Placed(norm, _before(sites, dim, context)) for norm in norms]


def _before(sites: Sites, dim: int, context: Context) -> BeforeModule:
    return BeforeModule(sites.build("after", dim), context)


def _known(where: str) -> str:
    if where not in NORMS:
        raise InputError(
            f"where: expected one of {', '.join(NORMS)}, or a pattern of module names, "
            f"got {where!r}"
        )
    return where


def require(model: nn.Module, parts: Iterable[nn.Module], factories: Sequence[Factory]) -> None:
    """Does nothing, since images are not causal."""


def readers(model: nn.Module, names: Iterable[str], current: Current) -> list[Placed]:
    """Returns no hooks, since the tokens of an image are one group."""
    return []


def _channels(name: str, block: nn.Module) -> int:
    """Returns the number of channels of a block's tokens."""
    missing = [part for part in PARTS if not isinstance(getattr(block, part, None), nn.Module)]
    if missing:
        raise InputError(
            f"model: aggregators act in blocks with {', '.join(PARTS)}, and {name} "
            f"({type(block).__name__}) has no {missing[0]}; give where= as a pattern of module "
            "names whose outputs are tokens (B, N, C)"
        )
    return block.attn.proj.out_features


def _in_attention(name: str, attn: nn.Module, sites: Sites, context: Context) -> list[Placed]:
    if not sites.has("inside", "instead"):
        return []
    if not _mixes_all_tokens(attn):
        raise InputError(
            f"model: {name}.attn ({type(attn).__name__}) does not mix all tokens by torch's fused "
            "attention; it offers only: after"
        )
    if sites.has("instead"):
        site = InsteadOfAttention(sites.build("instead", attn.proj.out_features), context)
    else:
        channels = attn.proj.in_features // attn.num_heads
        site = InsideAttention(sites.build("inside", channels), context)
    return [Placed(attn, site)]


def _mixes_all_tokens(attn: nn.Module) -> bool:
    kind = type(attn)
    return f"{kind.__module__}.{kind.__name__}" in WHOLE and attn.fused_attn
