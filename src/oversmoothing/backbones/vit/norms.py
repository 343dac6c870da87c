"""Where the aggregators of a vision transformer act, its LayerNorms included."""

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator, Context, make
from oversmoothing.backbones.vit import attention as vit_attention
from oversmoothing.errors import InputError

After = Literal["branch", "norm2", "norms"]
NORMS = {"branch": (), "norm2": ("norm2",), "norms": ("norm1", "norm2")}  # replaced in a block


class InPlaceOfNorm(nn.Module):
    """Aggregators of the site after in the place of a LayerNorm, the residual stream untouched.

    The last aggregator that ends in a LayerNorm of its own (attribute ``norm``, as ContraNorm's)
    takes over weight, bias and epsilon of the one replaced: pretrained weights keep their meaning,
    and at s = 0 the network is the plain one.

    Args:
        replaced: LayerNorm.
        aggregators: in the order in which they act.
        prefix: leading tokens that are no patches.

    Shapes: x (B, N, C) -> (B, N, C).
    """

    def __init__(self, replaced: nn.Module, aggregators: list[Aggregator], prefix: int) -> None:
        super().__init__()
        self.context = Context(prefix=prefix)
        self.aggregators = nn.ModuleList(aggregators)
        own = [a.norm for a in aggregators if isinstance(getattr(a, "norm", None), nn.LayerNorm)]
        if own and isinstance(replaced, nn.LayerNorm):
            own[-1].load_state_dict(replaced.state_dict())
            own[-1].eps = replaced.eps

    def forward(self, x: Tensor) -> Tensor:
        for aggregator in self.aggregators:
            x = aggregator(x, self.context)
        return x


def equip(
    network: nn.Module,
    chosen: list[int],
    factories: list[Callable[..., Aggregator]],
    prefix: int,
    after: After = "branch",
) -> None:
    """Puts new instances of every aggregator into the chosen blocks of a network.

    Args:
        network: with timm's pre-norm ``blocks`` and a final ``norm``, weights loaded.
        chosen: indices of blocks; the final norm belongs to the last block.
        factories: in the order in which they act.
        prefix: leading tokens that are no patches.
        after: where those of the site after act. ``branch``: behind the attention's projection,
            before the residual sum. ``norm2``: in the place of each block's second LayerNorm, so
            behind attention and residual sum, as ContraNorm's text has it. ``norms``: in the place
            of every LayerNorm, 2 a block and the final one, as its ViT code has it.

    Raises:
        InputError: aggregators that exclude one another.
    """
    dim = network.embed_dim
    inner, outer = factories, []
    if after != "branch":
        outer = [f for f in factories if make(f, dim).site == "after"]
        inner = [f for f in factories if f not in outer]
    for block in (network.blocks[i] for i in chosen):
        vit_attention.equip(block, inner, prefix)
        for name in NORMS[after]:
            _replace(block, name, [make(f, dim) for f in outer], prefix)
        _freeze_unreached(block)
    if after == "norms" and len(network.blocks) - 1 in chosen:
        _replace(network, "norm", [make(f, dim) for f in outer], prefix)


def check_after(after: str) -> None:
    """Raises InputError where ``backbone.after`` is no place."""
    if after not in NORMS:
        raise InputError(
            f"backbone.after: expected one of {', '.join(get_args(After))}; got {after}"
        )


def _replace(owner: nn.Module, name: str, aggregators: list[Aggregator], prefix: int) -> None:
    if aggregators:
        setattr(owner, name, InPlaceOfNorm(getattr(owner, name), aggregators, prefix))


def _freeze_unreached(block: nn.Module) -> None:
    """What feeds only a mixing that passes no gradient can learn nothing."""
    instead = getattr(block.attn, "instead", None)
    if instead is not None and not instead.passes_gradient:
        block.norm1.requires_grad_(False)
