"""Measures of attention maps: similarity of their rows, entropy, sinks, and similarity of layers.

The similarity of maps in ContraNorm (Sec. 3.1, Fig. 2) follows Gong et al. 2021 and Wang et al.
2022 and has no formula. The paper says that features become alike as the similarity goes to 1. This
is true if the rows of a map are compared, since equal rows give equal tokens.

All functions compute in float64; prefix tokens have rows as well.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor


class MapSums:
    """Sums over the rows of maps, which come in pieces (..., heads, n, N), in their precision."""

    def __init__(self, pieces: Iterable[Tensor]) -> None:
        self.rows, self.entropy, total = 0, torch.zeros(()), torch.zeros(())
        for A in pieces:
            norms = torch.linalg.vector_norm(A, dim=-1)
            weights = torch.stack(
                [1 / norms.masked_fill(norms == 0, 1), torch.ones_like(norms)], -2
            )
            total = total + weights @ A
            logs = A.clamp_min(1e-30).log_()
            self.entropy = self.entropy - logs.mul_(A).sum(dim=(-2, -1))
            self.rows += A.shape[-2]
        self.directions, self.mass = total[..., 0, :].double(), total[..., 1, :].double()

    def measures(self) -> dict[str, Tensor]:
        """The means over heads, by the names of the functions below, each (...)."""
        n = self.rows
        similarity = (self.directions.square().sum(dim=-1) - n) / (n * (n - 1) or math.nan)
        found = {
            "attention_similarity": similarity,
            "attention_entropy": self.entropy.double() / (n * math.log(n) or math.nan),
            "attention_sink": self.mass.amax(dim=-1) / n,
        }
        return {name: value.mean(dim=-1) for name, value in found.items()}


def attention_similarity(A: Tensor) -> Tensor:
    """Mean cosine of the rows i < j of a map, mean over heads; 1 if all rows are alike.

    Over all N² pairs, as some papers have it, it is ((N − 1) ours + 1) / N.

    Shapes: A (B, heads, N, N) -> (B,).
    """
    return MapSums([A.double()]).measures()["attention_similarity"]


def attention_entropy(A: Tensor) -> Tensor:
    """Mean entropy of the rows divided by log N, mean over heads; 1: uniform, 0: one token each.

    Others print the entropy in nats. A causal map stays below 1, since its rows have fewer tokens.

    Shapes: A (B, heads, N, N) -> (B,).
    """
    return MapSums([A.double()]).measures()["attention_entropy"]


def attention_sink(A: Tensor) -> Tensor:
    """The share of all attention that the most attended token gets, mean over heads.

    It is 1/N for uniform maps. Xiao et al. 2024 look at the first token, which is this one in most
    language models.

    Shapes: A (B, heads, N, N) -> (B,).
    """
    return MapSums([A.double()]).measures()["attention_sink"]


def attention_gap(A: Tensor) -> Tensor:
    """σ₁/σ₂ of a map, mean over heads (Mind the Gap, ICML 2025); large: close to rank one.

    The spectral gap of a Markov chain is ``1 − |λ₂|``, of its eigenvalues.

    Shapes: A (B, heads, N, N) -> (B,); infinite for maps of rank one.
    """
    sigma = torch.linalg.svdvals(A.double())
    return (sigma[..., 0] / sigma[..., 1]).mean(dim=-1)


def attention_cosine(A: Tensor, other: Tensor) -> Tensor:
    """Mean cosine of a row of a map and the same row of another layer's.

    DeepViT (2021) compares columns: what a token gives to the others.

    Shapes: A, other (B, heads, N, N) or some of their rows -> (B,).
    """
    return torch.cosine_similarity(A.double(), other.double(), dim=-1).mean(dim=(-2, -1))
