"""T2T-ViT (Yuan et al., ICCV 2021) with aggregators; with external attention it is EAMLP.

EAMLP: Guo et al., TPAMI 2022, Beyond Self-attention. The sites are in the chosen blocks, see
``attention``. The tokens-to-token module before the blocks has no sites.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from oversmoothing.adapters.blocks import chosen
from oversmoothing.adapters.sites import Factory
from oversmoothing.adapters.timm import NORMS
from oversmoothing.checks import check_choice
from oversmoothing.lab.backbones.options import MEAN, STD, check_rate
from oversmoothing.lab.backbones.vit.attention import equip
from oversmoothing.lab.backbones.vit.t2t_tokens import (
    STRIDE,
    AttentionMixing,
    ExternalMixing,
    TokensToToken,
)
from oversmoothing.lab.backbones.vit.tokens import TokenStream


class Size(NamedTuple):
    """Channels, number of blocks, number of heads, and ratio of MLP width to channels."""

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
    """A T2T-ViT without classifier, with random weights, for images of any size.

    Blocks are pre-norm; Q, K and V have no biases. EAMLP is this network with the aggregator
    ``external_multihead`` and ``tokens=external``. Positions are sinusoids of the index of the
    token, CLS included, computed for every size of image.

    Args:
        aggregators: factories, as in ``vit.ViT``.
        name: ``t2t_vit_`` and the number of blocks: 7, 10, 12, 14, 19 or 24.
        tokens: mixing of the tokens between the splits of the image: ``external`` attention (EAMLP)
            or softmax ``attention`` (T2T-ViT with transformer layers).
        blocks, mean, std, after, drop_path: as in ``vit.ViT``.
        norm: LayerNorm (``layer``) or BatchNorm over all tokens of a batch (``batch``), in the
            blocks and after them.

    Raises:
        InputError: an argument out of range, or aggregators that exclude each other.
    """

    def __init__(
        self,
        aggregators: list[Factory],
        name: str = "t2t_vit_7",
        tokens: Literal["external", "attention"] = "external",
        blocks: str | list[int] = "all",
        mean: list[float] = MEAN,
        std: list[float] = STD,
        after: Literal["branch", "norm2", "norms"] = "branch",
        drop_path: float = 0.0,
        norm: Literal["layer", "batch"] = "layer",
    ) -> None:
        check_choice("backbone.name", name, SIZES)
        check_choice("backbone.tokens", tokens, MIXINGS)
        check_choice("backbone.after", after, NORMS)
        check_rate("drop_path", drop_path)
        check_choice("backbone.norm", norm, TOKEN_NORMS)
        network = Network(SIZES[name], MIXINGS[tokens], drop_path, TOKEN_NORMS[norm])
        super().__init__(network, name, STRIDE, 1, False, mean, std)
        self._sinusoids: Tensor | None = None
        indices = chosen(blocks, self.depth, "backbone.blocks")
        equip(network, indices, aggregators, self.prefix, after)

    def embed(self, images: Tensor) -> Tensor:
        """Embeds patches, CLS and positions. Shapes: (B, 3, H, W) -> (B, 1 + H·W/256, C)."""
        patches = self.network.tokens(images)
        cls = self.network.cls_token.expand(len(images), -1, -1)
        x = torch.cat([cls, patches], dim=1)
        return x + self._positions(x)

    def _positions(self, x: Tensor) -> Tensor:
        """Returns the positions of tokens x, kept for the next call. (B, N, C) -> (N, C)."""
        N, C = x.shape[1:]
        kept = self._sinusoids
        if kept is None or (len(kept), kept.dtype, kept.device) != (N, x.dtype, x.device):
            kept = self._sinusoids = sinusoids(N, C).to(x)
        return kept


class TokenBatchNorm(nn.Module):
    """BatchNorm of every channel over all tokens of a batch. Shapes: (B, N, C) -> (B, N, C)."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(dim, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, -2)).view(x.shape)


TOKEN_NORMS: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "batch": TokenBatchNorm}


class Network(nn.Module):
    """The parameters: tokens-to-token module (with ``mixing``), CLS, blocks and final norm."""

    def __init__(
        self,
        size: Size,
        mixing: Callable[[int], nn.Module],
        drop_path: float,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:
        from timm.models.vision_transformer import Block

        super().__init__()
        C, depth, heads, ratio = size
        self.embed_dim = C
        self.tokens = TokensToToken(mixing, C)
        self.cls_token = nn.Parameter(torch.empty(1, 1, C))
        rates = torch.linspace(0, drop_path, depth).tolist()
        made = [Block(C, heads, ratio, drop_path=p, norm_layer=norm) for p in rates]
        self.blocks = nn.ModuleList(made)
        self.norm = norm(C)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Draws weights from a truncated N(0, 0.02²); M_v starts equal to M_k; biases are 0."""
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
    """Returns the positions of N tokens (Vaswani et al., NeurIPS 2017, Sec. 3.5).

    Token n has sin(n/10000^(2i/C)) in channel 2i and the cosine in channel 2i + 1.

    Shapes: -> (N, C), float64.
    """
    rates = 10000.0 ** -(torch.arange(0, C, 2, dtype=torch.float64) / C)
    angles = torch.arange(N, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
