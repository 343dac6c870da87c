"""Measures of attention maps: similarity of their rows, entropy, sinks, and similarity of layers.

The similarity of maps in ContraNorm (Sec. 3.1, Fig. 2) follows Gong et al. 2021 and Wang et al.
2022 and has no formula. The paper says that features become alike as the similarity goes to 1. This
is true if the rows of a map are compared, since equal rows give equal tokens.

All functions compute in float64 and return float64. Rows of prefix tokens count. A map with an
entry that is not finite gives NaN; what is no map raises InputError.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from oversmoothing.checks import check_tensor
from oversmoothing.errors import InputError
from oversmoothing.metrics.smoothness import double

TINY = 1e-30  # lower bound of norms and of arguments of a logarithm


class MapSums(NamedTuple):
    """Sums over the rows of a map, computed in the type of the map.

    Attributes:
        rows: their number n, ().
        directed: number of those that are not 0, (..., heads).
        entropy: Σᵢ H(aᵢ), (..., heads).
        columns: Σᵢ aᵢ/‖aᵢ‖ and Σᵢ aᵢ, (..., heads, 2, N).
    """

    rows: Tensor
    directed: Tensor
    entropy: Tensor
    columns: Tensor

    @classmethod
    def of(cls, pieces: Iterable[Tensor]) -> "MapSums":
        """Sums the rows of all pieces (..., heads, ≤ n, N) of a map."""
        rows, directed, entropy, columns = 0, *(torch.zeros(()) for _ in range(3))
        for A in pieces:
            norms = torch.linalg.vector_norm(A, dim=-1)
            directed = directed + (norms > TINY).sum(dim=-1)
            inverse = norms.clamp_min(TINY).reciprocal()
            columns = columns + torch.stack([inverse, torch.ones_like(inverse)], dim=-2) @ A
            entropy = entropy - A.clamp_min(TINY).log_().mul_(A).sum(dim=(-2, -1))
            rows += A.shape[-2]
        return cls(torch.tensor(rows), directed, entropy, columns)

    def measures(self) -> dict[str, Tensor]:
        """The means over heads, by the names of the functions below, each (...)."""
        rows, directed, entropy, columns = map(double, self)
        n = rows.to(columns.device)[..., None]
        directions, mass = columns.unbind(dim=-2)
        found = {
            "attention_similarity": (directions.square().sum(dim=-1) - directed) / (n * (n - 1)),
            "attention_entropy": entropy / (n * n.log()),
            "attention_sink": mass.amax(dim=-1) / n,
        }
        single = (n == 1)[..., 0]
        means = {name: value.mean(dim=-1) for name, value in found.items()}
        return {name: value.masked_fill(single, math.nan) for name, value in means.items()}


def attention_similarity(A: Tensor) -> Tensor:
    """Mean cosine of the rows i < j of a map, mean over heads; 1 if all rows are alike.

    A row of zeros has cosine 0. Some papers average over all N² pairs; from the result s here that
    is ((N − 1) s + 1) / N.

    Shapes: A (B, heads, N, N) -> (B,); NaN for N = 1.
    """
    return MapSums.of([_map("A", A)]).measures()["attention_similarity"]


def attention_entropy(A: Tensor) -> Tensor:
    """Mean entropy of the rows divided by log N, mean over heads; 1: uniform, 0: one token each.

    Some papers print it in nats. A causal map stays below 1, since its rows have fewer tokens.

    Shapes: A (B, heads, N, N) -> (B,); NaN for N = 1.
    """
    return MapSums.of([_map("A", A)]).measures()["attention_entropy"]


def attention_sink(A: Tensor) -> Tensor:
    """The share of all attention that the most attended token gets, mean over heads.

    It is 1/N for uniform maps. Xiao et al. 2024 look at the first token, which is this one in most
    language models.

    Shapes: A (B, heads, N, N) -> (B,); NaN for N = 1.
    """
    return MapSums.of([_map("A", A)]).measures()["attention_sink"]


def attention_gap(A: Tensor) -> Tensor:
    """σ₁/σ₂ of a map, mean over heads (Mind the Gap, ICML 2025); large: close to rank one.

    It is not the spectral gap of a Markov chain, ``1 − |λ₂|`` with the second eigenvalue λ₂.

    Shapes: A (B, heads, N, N) -> (B,); infinite for maps of rank one, NaN for N = 1.
    """
    A = _map("A", A)
    finite = A.isfinite().all(dim=-1, keepdim=True).all(dim=-2, keepdim=True)
    sigma = torch.linalg.svdvals(A.masked_fill(~finite, 0)).masked_fill(~finite[..., 0], math.nan)
    return (sigma[..., :1] / sigma[..., 1:2]).mean(dim=(-2, -1))  # one token has no second value


def attention_cosine(A: Tensor, other: Tensor) -> Tensor:
    """Mean cosine of each row of a map and the same row of the map of another layer.

    DeepViT (2021) compares columns: what a token gives to the others.

    Shapes: A, other (B, heads, N, N) or some of their rows -> (B,).
    """
    A, other = _map("A", A), _map("other", other)
    if A.shape != other.shape:
        raise InputError(f"other: expected {tuple(A.shape)}, as A has, got {tuple(other.shape)}")
    return torch.cosine_similarity(A, other, dim=-1).mean(dim=(-2, -1))


def _map(key: str, A: Tensor) -> Tensor:
    """Returns a map in float64; raises InputError for what is none."""
    check_tensor(key, A)
    if A.dim() < 2:
        raise InputError(f"{key}: expected maps (B, heads, N, N), got {tuple(A.shape)}")
    return double(A if A.dim() > 2 else A[None])
