"""The tokens-to-token module: images to tokens in three overlapping splits (T2T-ViT).

Yuan et al., ICCV 2021, Sec. 3.1. The first split takes patches of 7×7 pixels with stride 4. The
other two join 3×3 tokens with stride 2. Between two splits a layer mixes the tokens, in 64
channels: by softmax attention in T2T-ViT, by external attention in EAMLP.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.external import double_norm

CHANNELS = 64  # of the tokens between two splits
STRIDE = 16  # of all three splits, in pixels


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
