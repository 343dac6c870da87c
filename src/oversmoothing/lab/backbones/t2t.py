"""T2T-ViT (Yuan et al., ICCV 2021) with aggregators; with external attention it is EAMLP.

EAMLP: Guo et al., TPAMI 2022, Beyond Self-attention. The sites are in the chosen blocks, see
``vit_attention``. The tokens-to-token module before the blocks has no sites.

The tokens-to-token module (Yuan et al., Sec. 3.1) turns images into tokens in three overlapping
splits. The first takes patches of 7×7 pixels with stride 4. The other two join 3×3 tokens with
stride 2. Between two splits a layer mixes the tokens, in 64 channels: by softmax attention in
T2T-ViT, by external attention in EAMLP.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.blocks import chosen
from oversmoothing.adapters.sites import Factory
from oversmoothing.aggregators.external import double_norm
from oversmoothing.checks import check_choice
from oversmoothing.lab.backbones.options import MEAN, STD, check_rate
from oversmoothing.lab.backbones.vit import TokenStream
from oversmoothing.lab.backbones.vit_attention import After, equip

CHANNELS = 64  # of the tokens between two splits
STRIDE = 16  # of all three splits, in pixels


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
        after: After = "branch",
        drop_path: float = 0.0,
        norm: Literal["layer", "batch"] = "layer",
    ) -> None:
        check_choice("backbone.name", name, SIZES)
        check_choice("backbone.tokens", tokens, MIXINGS)
        check_rate("drop_path", drop_path)
        check_choice("backbone.norm", norm, TOKEN_NORMS)
        network = Network(SIZES[name], MIXINGS[tokens], drop_path, TOKEN_NORMS[norm])
        super().__init__(network, name, STRIDE, 1, False, mean, std)
        self._sinusoids: Tensor | None = None
        indices = chosen(blocks, self.depth, "backbone.blocks")
        self.current = equip(network, indices, aggregators, self.prefix, after)

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


class Network(nn.Module):
    """The modules of a T2T-ViT: tokens-to-token module with ``mixing``, CLS, blocks, final norm."""

    def __init__(
        self,
        size: Size,
        mixing: Callable[[int], nn.Module],
        drop_path: float,
        norm: Callable[[int], nn.Module],
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


class ExternalMixing(nn.Module):
    """External attention from C_in to C channels with a skip connection from Q (EAMLP).

    .. math:: Q = X W_q + b,  A = \\mathrm{softmax_N}(Q M_kᵀ),  Â_{ij} = A_{ij} / Σ_j A_{ij}

    The result is Q + (Â M_v + b_v) W + b. The softmax is over tokens, the sum over the slots of
    the memories M_k and M_v (slots, C). Both are learned.

    Args:
        in_dim: C_in.
        dim: C.
        slots: number of slots of a memory.
        dropout: rate, for Â and for the result before the sum.

    Shapes: x (B, N, C_in) -> (B, N, C).
    """

    def __init__(
        self, in_dim: int, dim: int = CHANNELS, slots: int = 128, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.q = nn.Linear(in_dim, dim)
        self.m_k = nn.Linear(dim, slots, bias=False)
        self.m_v = nn.Linear(slots, dim)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x)
        mixed = self.m_v(self.dropout(double_norm(self.m_k(q))))
        return q + self.dropout(self.proj(mixed))


class AttentionMixing(nn.Module):
    """One-head softmax attention from C_in to C channels with a skip connection from V (T2T-ViT).

    .. math:: V + \\mathrm{softmax}(Q Kᵀ/√C_{in}) V W + b

    The scale is that of the authors' code, where Q and K have C channels.

    Args:
        in_dim: C_in.
        dim: C.

    Shapes: x (B, N, C_in) -> (B, N, C).
    """

    def __init__(self, in_dim: int, dim: int = CHANNELS) -> None:
        super().__init__()
        self.qkv = nn.Linear(in_dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        scale = x.shape[-1] ** -0.5
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)  # one head
        return (v + self.proj(F.scaled_dot_product_attention(q, k, v, scale=scale)))[:, 0]


class TokenLayer(nn.Module):
    """A pre-norm layer: mixing, which has its own skip connection, then an MLP of ratio 1.

    Args:
        mixing: builds the mixing from the number of channels C_in.
        in_dim: C_in.

    Shapes: x (B, N, C_in) -> (B, N, C).
    """

    def __init__(self, mixing: Callable[[int], nn.Module], in_dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(in_dim)
        self.mixing = mixing(in_dim)
        self.norm2 = nn.LayerNorm(CHANNELS)
        self.mlp = nn.Sequential(
            nn.Linear(CHANNELS, CHANNELS), nn.GELU(), nn.Linear(CHANNELS, CHANNELS)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.mixing(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TokensToToken(nn.Module):
    """Turns images into tokens, one for every 16×16 pixels.

    Args:
        mixing: builds the mixing of a layer between splits from the number of channels it gets.
        dim: C.

    Shapes: images (B, 3, H, W) -> (B, H·W/256, C); H and W are multiples of 16.
    """

    def __init__(self, mixing: Callable[[int], nn.Module], dim: int) -> None:
        super().__init__()
        self.layer1 = TokenLayer(mixing, 3 * 7 * 7)
        self.layer2 = TokenLayer(mixing, CHANNELS * 3 * 3)
        self.project = nn.Linear(CHANNELS * 3 * 3, dim)

    def forward(self, images: Tensor) -> Tensor:
        B, _, H, W = images.shape
        x = F.unfold(images, 7, stride=4, padding=2).mT
        x = _split(self.layer1(x), H // 4, W // 4)
        x = _split(self.layer2(x), H // 8, W // 8)
        return self.project(x)


def _split(x: Tensor, rows: int, columns: int) -> Tensor:
    """Joins the 3×3 tokens around every second token. Shapes: (B, N, C) -> (B, N/4, 9C)."""
    return F.unfold(x.mT.unflatten(-1, (rows, columns)), 3, stride=2, padding=1).mT


class TokenBatchNorm(nn.Module):
    """BatchNorm of every channel over all tokens of a batch. Shapes: (B, N, C) -> (B, N, C)."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(dim, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, -2)).view(x.shape)


MIXINGS = {"external": ExternalMixing, "attention": AttentionMixing}
TOKEN_NORMS: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "batch": TokenBatchNorm}


def sinusoids(N: int, C: int) -> Tensor:
    """Returns the positions of N tokens (Vaswani et al., NeurIPS 2017, Sec. 3.5).

    Token n has sin(n/10000^(2i/C)) in channel 2i and the cosine in channel 2i + 1.

    Shapes: -> (N, C), float64.
    """
    rates = 10000.0 ** -(torch.arange(0, C, 2, dtype=torch.float64) / C)
    angles = torch.arange(N, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
