"""Tokens-to-token module: images to tokens in three overlapping splits (Yuan et al., ICCV 2021).

Unfolding makes patches of 7×7 every 4 pixels, then of 3×3 tokens every second one, twice; between
two splits a layer mixes the tokens, in 64 channels. EAMLP mixes with external attention.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.aggregators.external import double_norm

CHANNELS = 64  # of the tokens between two splits
STRIDE = 16  # of the three splits together


class ExternalMixing(nn.Module):
    """External attention from C_in to C channels with a skip from the embedding (EAMLP).

    .. math:: Q = X W_q + b,  A = \\mathrm{softmax_N}(Q M_kᵀ),  Â_{ij} = A_{ij} / Σ_j A_{ij}

    and the result is Q + (Â M_v + b_v) W + b. The softmax is over tokens, the sum over slots of
    the memories M_k, M_v (slots, C); M_v starts as M_k, and both are learned.

    Args:
        in_dim: C_in.
        dim: C.
        slots: memory size.
        dropout: of Â and of the result before the sum.

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
    """Softmax attention with one head from C_in to C channels, and a skip from V (T2T-ViT).

    .. math:: V + \\mathrm{softmax}(Q Kᵀ/√C) V W + b

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
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)  # one head
        return (v + self.proj(F.scaled_dot_product_attention(q, k, v)))[:, 0]


class TokenLayer(nn.Module):
    """Pre-norm layer: mixing, which has its own skip, then an MLP of ratio 1.

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
    """Images to tokens, one for every 16×16 pixels.

    Args:
        mixing: of the two layers between splits, built from the number of channels it gets.
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
    """3×3 neighbours joined, at every second token. Shapes: (B, N, C) -> (B, N/4, 9C)."""
    return F.unfold(x.mT.unflatten(-1, (rows, columns)), 3, stride=2, padding=1).mT
