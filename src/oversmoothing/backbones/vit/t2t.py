"""T2T-ViT (Yuan et al., ICCV 2021), which with external attention is EAMLP (Guo et al., 2021)."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones.pixels import MEAN, STD
from oversmoothing.backbones.vit import blocks as vit_blocks
from oversmoothing.backbones.vit import norms as vit_norms
from oversmoothing.backbones.vit.t2t_tokens import (
    STRIDE,
    AttentionMixing,
    ExternalMixing,
    TokensToToken,
)
from oversmoothing.backbones.vit.tokens import TokenStream
from oversmoothing.errors import InputError


class Size(NamedTuple):
    """Channels, blocks, heads, and how many times wider the MLP is."""

    dim: int
    depth: int
    num_heads: int
    mlp_ratio: float


SIZES = {
    "t2t_vit_7": Size(256, 7, 4, 2.0),
    "t2t_vit_10": Size(256, 10, 4, 2.0),
    "t2t_vit_12": Size(256, 12, 4, 2.0),
    "t2t_vit_14": Size(384, 14, 6, 3.0),
    "t2t_vit_19": Size(448, 19, 7, 3.0),
    "t2t_vit_24": Size(512, 24, 8, 3.0),
}
MIXINGS = {"external": ExternalMixing, "attention": AttentionMixing}


class T2TViT(TokenStream):
    """A T2T-ViT without classifier and with random weights, for images of any size.

    Blocks are pre-norm with softmax attention without biases in Q, K, V; aggregators act in them
    as in ``vit.ViT``. EAMLP is this with ``external_multihead`` and ``tokens=external``. Positions
    are sinusoids of the token's index, CLS included, made anew for every size of image.

    Args:
        aggregators: factories, as in ``vit.ViT``.
        name: ``t2t_vit_`` 7, 10, 12, 14, 19 or 24, the number of blocks.
        tokens: what mixes tokens between the splits of the image: external attention (EAMLP), or
            softmax attention (T2T-ViT's transformer form).
        blocks: which have the aggregators: ``all``, ``last-half``, ``last-k`` or a list of
            0-based indices.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], images are divided by it.
        after: where aggregators of the site after act, see ``vit_norms``.
        drop_path: rate at which whole branches are dropped in training; grows linearly from 0 in
            the first block to this in the last.

    Attributes:
        dim: channels C. depth: number of blocks. patch: 16. prefix: 1, CLS. pretrained: False.

    Raises:
        InputError: an argument out of range, or aggregators that exclude one another.
    """

    def __init__(
        self,
        aggregators: list[Callable[..., Aggregator]],
        name: str = "t2t_vit_7",
        tokens: Literal["external", "attention"] = "external",
        blocks: str | list[int] = "all",
        mean: list[float] = MEAN,
        std: list[float] = STD,
        after: Literal["branch", "norm2", "norms"] = "branch",
        drop_path: float = 0.0,
    ) -> None:
        _check_choice("name", name, SIZES)
        _check_choice("tokens", tokens, MIXINGS)
        vit_blocks.check_drop_path(drop_path)
        vit_norms.check_after(after)
        network = Network(SIZES[name], MIXINGS[tokens], drop_path)
        super().__init__(network, name, STRIDE, 1, False, mean, std)
        chosen = vit_blocks.chosen(blocks, self.depth)
        vit_norms.equip(network, chosen, aggregators, self.prefix, after)

    def embed(self, images: Tensor) -> Tensor:
        """Patches with CLS and positions. Shapes: (B, 3, H, W) -> (B, 1 + H·W/256, C)."""
        patches = self.network.tokens(images)
        cls = self.network.cls_token.expand(len(images), -1, -1)
        x = torch.cat([cls, patches], dim=1)
        return x + sinusoids(*x.shape[1:]).to(x)


class Network(nn.Module):
    """The parameters: tokens-to-token module, CLS, blocks, final norm.

    Args:
        size: of the blocks.
        mixing: of the tokens-to-token module.
        drop_path: rate in the last block, from 0 in the first.
    """

    def __init__(self, size: Size, mixing: Callable[[int], nn.Module], drop_path: float) -> None:
        super().__init__()
        C, depth, heads, ratio = size
        self.embed_dim = C
        self.tokens = TokensToToken(mixing, C)
        self.cls_token = nn.Parameter(torch.empty(1, 1, C))
        rates = torch.linspace(0, drop_path, depth).tolist()
        made = [Block(C, heads, ratio, drop_path=p, norm_layer=nn.LayerNorm) for p in rates]
        self.blocks = nn.ModuleList(made)
        self.norm = nn.LayerNorm(C)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """N(0, 0.02²) truncated, biases 0; memories of values start as those of keys."""
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, ExternalMixing):
                module.m_v.weight.copy_(module.m_k.weight.mT)


def sinusoids(N: int, C: int) -> Tensor:
    """Positions of N tokens: sin of n/10000^(2i/C) in channel 2i, cos in 2i + 1 (Vaswani et al.).

    Shapes: -> (N, C), float64.
    """
    places = torch.arange(N, dtype=torch.float64)[:, None]
    rates = 10000.0 ** -(torch.arange(0, C, 2, dtype=torch.float64) / C)
    angles = places * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def _check_choice(name: str, value: str, options: dict) -> None:
    if value not in options:
        raise InputError(f"backbone.{name}: expected one of {', '.join(options)}; got {value}")
