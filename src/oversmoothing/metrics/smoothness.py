"""Measures of oversmoothing: rank, effective rank, cosine, variance, Dirichlet energy, MAD.

All functions take tokens x (..., N, C) with any leading dimensions, compute in float64 for inputs
of any type, and return float64 (...). A matrix with a non-finite entry gives NaN, not an error.
Edges (2, E) list both directions of every edge; self-loops are not counted.

Tokens without entries, and edges that are not pairs of their nodes, raise InputError.
"""

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.checks import check_edges
from oversmoothing.errors import InputError

GRAM_FLOOR = 1e-6  # relative size below which singular values of the Gram matrix are inaccurate
AT_ONCE = 1 << 16  # entries of a piece in float64, or 1/PIECES of the matrix if that is more
PIECES = 32


def singular_values(x: Tensor, exact: bool = False) -> Tensor:
    """Singular values of x/‖x‖_F, descending; all 0 where x = 0.

    They are computed from the eigenvalues of the smaller Gram matrix, which is faster than an SVD.
    Rounding changes an eigenvalue by about 1e-15 and a singular value σ by
    5e-16/σ: 5e-13 at the threshold 1e-3. Values below about 5e-8 are noise. There is no gradient
    where one of them is 0.

    Args:
        exact: use an SVD, for ratios of singular values below 1e-6.

    Shapes: x (..., N, C) -> (..., min(N, C)).
    """
    if len(_few_rows(x)) > 1 and x.shape[-2] > x.shape[-1] and not exact:
        gram, finite = _gram(x)
    else:
        x, finite = _unit(x if x.shape[-2] <= x.shape[-1] else x.mT)
        if exact:
            return torch.linalg.svdvals(x).masked_fill(~finite[..., None], torch.nan)
        gram = x @ x.mT
    sigma = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(-1)
    return sigma.masked_fill_(~finite[..., None], torch.nan)


def rank(x: Tensor, eps: float = 1e-3) -> Tensor:
    """Number of singular values of x/‖x‖_F above eps (Centered Self-Attention Layers, Sec. 4.1).

    Shapes: x (..., N, C) -> (...); 0 for x = 0.
    """
    return rank_of(singular_values(x, exact=eps < GRAM_FLOOR), eps)


def rank_of(sigma: Tensor, eps: float = 1e-3) -> Tensor:
    """:func:`rank` from the :func:`singular_values`. Shapes: (..., K) -> (...)."""
    return (sigma > eps).sum(dim=-1).double() + 0 * sigma[..., 0]  # keeps NaN


def effective_rank(x: Tensor) -> Tensor:
    """exp(H(p)), p = σ/Σσ (Roy, Vetterli 2007): 1 for rank one, N for N equal singular values.

    The Gram matrix's noise (see :func:`singular_values`) adds at most 1e-4 at N = 100. There is no
    gradient where a singular value is 0.

    Shapes: x (..., N, C) -> (...); 0 for x = 0.
    """
    return effective_rank_of(singular_values(x))


def effective_rank_of(sigma: Tensor) -> Tensor:
    """:func:`effective_rank` from the :func:`singular_values`. Shapes: (..., K) -> (...)."""
    total = sigma.sum(dim=-1, keepdim=True)
    entropy = torch.special.entr(sigma / _nonzero(total)).sum(dim=-1)
    return entropy.exp().masked_fill(total[..., 0] == 0, 0.0)


def mean_cosine(x: Tensor) -> Tensor:
    """Mean cosine over the pairs i < j of tokens; a zero token has cosine 0, one token gives NaN.

    Uses Σ_{i≠j} x̂ᵢ·x̂ⱼ = ‖Σ x̂ᵢ‖² − Σ ‖x̂ᵢ‖², so that no N×N matrix is formed.

    Shapes: x (..., N, C) -> (...).
    """
    return mean_cosine_of(_few_rows(x))


def mean_cosine_of(pieces: Iterable[Tensor]) -> Tensor:
    """:func:`mean_cosine` of the tokens in several pieces. Shapes: each (..., n, C) -> (...)."""
    N, total, squares = 0, torch.zeros(()), torch.zeros(())
    for piece in pieces:
        x_hat = _rows(piece)
        N += piece.shape[-2]
        total = total + x_hat.sum(dim=-2)
        squares = squares + x_hat.square().sum(dim=(-2, -1))
    pairs = total.square().sum(dim=-1) - squares
    return pairs / (N * (N - 1)) if N > 1 else torch.full_like(pairs, torch.nan)


def token_variance(x: Tensor) -> Tensor:
    """(1/N) Σ ‖xᵢ − x̄‖², the variance around the mean token (ContraNorm's paper).

    Shapes: x (..., N, C) -> (...).
    """
    _require_tokens(x)
    return _double(x).var(dim=-2, correction=0).sum(dim=-1)


def mean_share(x: Tensor) -> Tensor:
    """N‖x̄‖² / Σ‖xᵢ‖², the share of the mean token in the second moment of the tokens.

    It is 1 if all tokens are equal, 0 if their mean is 0, and about 1/N for independent random
    tokens around 0. Unlike the mean cosine it weighs tokens by their norm.

    Shapes: x (..., N, C) -> (...); NaN for x = 0.
    """
    size = _nonzero(_largest(x))
    total, squares = torch.zeros(()), torch.zeros(())
    for piece in _few_rows(x):
        scaled = _double(piece) / size
        total = total + scaled.sum(dim=-2)
        squares = squares + scaled.square().sum(dim=(-2, -1))
    return total.square().sum(dim=-1) / (x.shape[-2] * squares)


def mean_norm(x: Tensor) -> Tensor:
    """Mean 2-norm of the tokens. Shapes: x (..., N, C) -> (...)."""
    norms = [torch.linalg.vector_norm(_double(piece), dim=-1) for piece in _few_rows(x)]
    return torch.cat(norms, dim=-1).mean(dim=-1) + _zeros(x)


def dirichlet_energy(x: Tensor, edges: Tensor) -> Tensor:
    """(1/N) Σᵢ Σ_{j∈N(i)} ‖xᵢ − xⱼ‖² (Rusch, Bronstein, Mishra 2023, Eq. 2): 0 on constants.

    Shapes: x (..., N, C), edges (2, E) -> (...).
    """
    energy = _zeros(x)
    for row, col in _pieces(edges.to(x.device), x):
        difference = _double(x[..., row, :]) - _double(x[..., col, :])
        energy += difference.square().sum(dim=(-2, -1))
    return energy / x.shape[-2]


def mean_average_distance(x: Tensor, edges: Tensor) -> Tensor:
    """Mean over nodes of the mean cosine distance to their neighbours (MAD, Chen et al. 2020).

    Chen et al. leave out pairs at distance exactly 0, so that rounding decides the result once
    nodes are alike. Here every pair counts. Nodes without a neighbour are left out.

    Shapes: x (..., N, C), edges (2, E) -> (...); NaN for a graph without edges.
    """
    norms = torch.cat([_norms(piece) for piece in _few_rows(x)], dim=-2)
    total = torch.zeros_like(norms[..., 0]) + _zeros(x)[..., None]
    degree = total.new_zeros(x.shape[-2])
    for row, col in _pieces(edges.to(x.device), x):
        ends = [_double(x[..., i, :]) / norms[..., i.to(norms.device), :] for i in (row, col)]
        distance = 1 - (ends[0] * ends[1]).sum(dim=-1)
        row = row.to(total.device)
        total.index_add_(-1, row, distance)
        degree.index_add_(-1, row, torch.ones_like(row, dtype=degree.dtype))
    connected = degree > 0
    return (total[..., connected] / degree[connected]).mean(dim=-1)


OF_BLOCKS = {
    "cosine": mean_cosine,
    "effective_rank": effective_rank,
    "token_variance": token_variance,
}


def by_block(batches: Iterable[Iterable[Tensor]]) -> dict[str, list[float]]:
    """Means over samples of :data:`OF_BLOCKS`, for every block.

    Args:
        batches: for every batch of samples, the tokens after each block in order, each (B, N, C).

    Returns:
        ``cosine``, ``effective_rank`` and ``token_variance``, one value per block.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in OF_BLOCKS}
    for blocks in batches:
        each = zip(*([measure(x) for measure in OF_BLOCKS.values()] for x in blocks))
        for name, values in zip(found, each):
            found[name].append(torch.stack(values, dim=1))  # (B, depth)
    return {name: torch.cat(values).mean(dim=0).tolist() for name, values in found.items()}


def _double(x: Tensor) -> Tensor:
    """Converts x to float64; on Apple's GPUs, which have no float64, it is moved to the CPU."""
    return x.cpu().double() if x.device.type == "mps" else x.double()


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns x/‖x‖_F, or 0 if x is 0 or not finite, and whether x is finite; avoids overflow."""
    x = _double(x)
    finite = x.isfinite().all(dim=(-2, -1))
    x = x.masked_fill(~finite[..., None, None], 0.0)
    x = x / _nonzero(x.abs().amax(dim=(-2, -1), keepdim=True))
    return x / _nonzero(torch.linalg.matrix_norm(x, keepdim=True)), finite


def _gram(x: Tensor) -> tuple[Tensor, Tensor]:
    """Computes xᵀx / ‖x‖_F² of a long matrix in pieces; also returns whether x is finite."""
    size = _largest(x)
    finite = size.isfinite()
    size = _nonzero(size.masked_fill(~finite, 0.0))
    gram = torch.zeros(())
    for piece in _few_rows(x):
        scaled = (_double(piece) / size).masked_fill(~finite, 0.0)
        gram = gram + scaled.mT @ scaled
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)[..., None, None]
    return gram / _nonzero(trace), finite[..., 0, 0]


def _nonzero(size: Tensor) -> Tensor:
    return size.masked_fill(size == 0, 1.0)


def _norms(x: Tensor) -> Tensor:
    """Computes 2-norms of rows without overflow; 1 for zero rows. (..., C) -> (..., 1)."""
    x = _double(x)
    size = _nonzero(x.abs().amax(dim=-1, keepdim=True))
    return _nonzero(size * torch.linalg.vector_norm(x / size, dim=-1, keepdim=True))


def _rows(x: Tensor) -> Tensor:
    """Divides rows by their 2-norm without overflow; zero rows stay zero."""
    x = _double(x)
    return F.normalize(x / _nonzero(x.abs().amax(dim=-1, keepdim=True)), dim=-1)


def _few_rows(x: Tensor) -> tuple[Tensor, ...]:
    """Splits tokens. Shapes: x (..., N, C) -> (..., n, C)."""
    return x.split(_at_once(x), dim=-2)


def _largest(x: Tensor) -> Tensor:
    """Returns the largest absolute value of a matrix. Shapes: (..., N, C) -> (..., 1, 1)."""
    _require_tokens(x)
    x = x if x.is_floating_point() else _double(x)
    return _double(torch.linalg.vector_norm(x, torch.inf, dim=(-2, -1), keepdim=True))


def _zeros(x: Tensor) -> Tensor:
    """0 for every matrix, NaN for one with a non-finite entry. Shapes: (..., N, C) -> (...)."""
    return 0 * _largest(x.detach())[..., 0, 0]


def _require_tokens(x: Tensor) -> None:
    if x.dim() < 2 or 0 in x.shape[-2:]:
        raise InputError(f"x: expected tokens (..., N, C), N and C above 0, got {tuple(x.shape)}")


def _at_once(x: Tensor) -> int:
    _require_tokens(x)
    return max(1, AT_ONCE // x.shape[-1], x.shape[-2] // PIECES)


def _pieces(edges: Tensor, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields rows and columns of the edges in pieces, without self-loops."""
    check_edges(edges, x.shape[-2])
    for piece in edges[:, edges[0] != edges[1]].split(_at_once(x), dim=1):
        yield piece[0], piece[1]
