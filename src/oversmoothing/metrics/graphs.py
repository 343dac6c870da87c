"""Measures of nodes and their edges: Dirichlet energies, MAD, distances of groups.

They take nodes x (..., N, C), compute in float64, and return float64 (...). Edges (2, E) list both
directions of every edge; self-loops are not counted. A matrix with a non-finite entry gives NaN.

Edges that are not pairs of their nodes, and weights or labels of another number, raise InputError.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from oversmoothing.checks import check_edges, check_tensor
from oversmoothing.errors import InputError
from oversmoothing.metrics.smoothness import AT_ONCE, Of, Tokens, at_once, double, nonzero


def dirichlet_energy(x: Of, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """(1/N) Σᵢ Σ_{j∈N(i)} wᵢⱼ ‖xᵢ − xⱼ‖² (Rusch, Bronstein, Mishra 2023, Eq. 2); 0: all equal.

    With L = D − A this is 2 tr(xᵀLx)/N, as the sum has both directions of every edge. Some papers
    print tr(xᵀLx)/N or tr(xᵀLx). It falls with the norm of x; :func:`rayleigh_quotient` does not.

    Args:
        weight: of the edges, (E,); None: 1.

    Shapes: x (..., N, C), edges (2, E) -> (...).
    """
    t = Tokens.of(x)
    return _energy(t, edges, weight) * t.scale.square() / t.x.shape[-2]


def rayleigh_quotient(x: Of, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """tr(xᵀLx)/‖x‖_F² with L = I − D^{-½}AD^{-½}, the normalised Dirichlet energy: 0 to 2.

    It is 0 for nodes xᵢ = √dᵢ y, not for equal nodes. A node without neighbours adds 0 to tr(xᵀLx).
    Some papers halve it, or use L = D − A.

    Shapes: x (..., N, C), edges (2, E), weight (E,) -> (...); NaN for x = 0.
    """
    return _quotient(x, edges, weight, 0.0)


def rayleigh_quotient_loops(x: Of, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """:func:`rayleigh_quotient` with a self-loop of weight 1 at every node, as a GCN has: below 2.

    Shapes: x (..., N, C), edges (2, E), weight (E,) -> (...); NaN for x = 0.
    """
    return _quotient(x, edges, weight, 1.0)


def mad(x: Of, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over nodes of the mean cosine distance to their neighbours (MAD, Chen et al. 2020).

    Chen et al. leave out pairs at distance exactly 0, so that rounding decides the result once
    nodes are alike. Here every pair counts. Nodes without a neighbour are left out.

    Args:
        weight: of the edges, (E,), for a weighted mean over the neighbours; None: 1.

    Shapes: x (..., N, C), edges (2, E) -> (...); NaN for a graph without edges.
    """
    t = Tokens.of(x)
    norms = nonzero(t.sums[1] * t.scale[..., None])
    total, degree = torch.zeros_like(norms), norms.new_zeros(t.x.shape[-2])
    for row, col, w in _pieces(edges, weight, t.x):
        ends = [double(t.x[..., i, :]) / norms[..., i.to(norms.device), None] for i in (row, col)]
        distance = 1 - (ends[0] * ends[1]).sum(dim=-1)
        row, w = row.to(norms.device), w.to(norms)
        total = total.index_add(-1, row, w * distance)
        degree = degree.index_add(-1, row, w)
    connected = degree != 0
    return (total[..., connected] / degree[connected]).mean(dim=-1) + 0 * t.scale


def mad_gap(x: Of, edges: Tensor, near: int = 3, far: int = 8) -> Tensor:
    """MAD of pairs at ``far`` or more hops less that of pairs at most ``near`` apart (Chen et al.).

    It is large if near nodes are alike and far ones are not, and about 0 if all are alike. Nodes
    that no path joins count as far. Pairs at distance exactly 0 count, unlike in Chen et al., see
    :func:`mad`. The computation forms matrices (N, N).

    Shapes: x (..., N, C), edges (2, E) -> (...); NaN without such pairs.
    """
    t = Tokens.of(x)
    check_edges(edges, t.x.shape[-2])
    within = _within(edges, t.x.shape[-2], max(near, far - 1))
    unit = t.whole() / nonzero(t.sums[1])[..., None]
    distance = 1 - unit @ unit.mT
    means = []
    for mask in (of.to(distance) for of in (within[near] - within[0], 1 - within[far - 1])):
        degree = mask.sum(dim=-1)
        of_node = (distance * mask).sum(dim=-1)[..., degree > 0] / degree[degree > 0]
        means.append(of_node.mean(dim=-1))
    return means[1] - means[0]


def group_distance_ratio(x: Of, labels: Tensor) -> Tensor:
    """Mean distance of nodes of two classes, divided by that of nodes of one (Zhou et al. 2020).

    Both are means over pairs of classes of the mean Euclidean distance over all pairs of their
    nodes, a node with itself included. The ratio is large if classes lie apart, and 1 if all mix.
    Zhou et al. divide the sum over pairs of K classes by (K − 1)², not K(K − 1): their ratio is
    K / (K − 1) times as large. torch-geometric's ``DiffGroupNorm`` compares a class with all other
    nodes at once.

    Args:
        labels: the class of every node; nodes with negative labels are left out.

    Shapes: x (..., N, C), labels (N,) integers -> (...); NaN for one class or none.
    """
    t = Tokens.of(x)
    check_tensor("labels", labels)
    if labels.shape != (N := t.x.shape[-2:-1]):
        raise InputError(f"labels: expected one a node {(*N,)}, got {(*labels.shape,)}")
    x, labels = t.whole(), labels.to(t.scale.device)
    if not (labels >= 0).any():
        return torch.full_like(t.scale, torch.nan)
    _, classes = labels[labels >= 0].unique(return_inverse=True)
    x, of = x[..., labels >= 0, :], torch.nn.functional.one_hot(classes).to(x)  # (N, K)
    number, K = of.shape
    total, few = x.new_zeros(()), max(1, AT_ONCE // max(1, number))
    for some, own in zip(x.split(few, dim=-2), of.split(few)):
        exact = "donot_use_mm_for_euclid_dist"  # nodes that are alike have small distances
        total = total + own.mT @ (torch.cdist(some, x, compute_mode=exact) @ of)
    means = total / (of.sum(dim=0)[:, None] * of.sum(dim=0))
    own = means.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    others = means.sum(dim=(-2, -1)) - own
    return (others / ((K - 1 or torch.nan) * own)) + 0 * t.scale


def _within(edges: Tensor, N: int, hops: int) -> list[Tensor]:
    """Returns 1 for pairs of nodes at most 0, 1, … hops apart, and 0 for others, (N, N) each."""
    ones = torch.ones(edges.shape[1])
    joined = torch.sparse_coo_tensor(edges.cpu(), ones, (N, N), check_invariants=True)
    within = [torch.eye(N)]
    for _ in range(hops):
        within.append(((within[-1] + joined @ within[-1]) > 0).to(ones))
    return within


def _energy(t: Tokens, edges: Tensor, weight: Tensor | None, by: Tensor | None = None) -> Tensor:
    """Σᵢ Σ_{j∈N(i)} wᵢⱼ ‖xᵢ − xⱼ‖² of x / scale, whose rows are multiplied by ``by`` (N,)."""
    energy, scale = 0 * t.scale, t.scale[..., None, None]
    for row, col, w in _pieces(edges, weight, t.x):
        one, other = (double(t.x[..., i, :]) / scale for i in (row, col))
        if by is not None:
            one, other = (x * by[i.to(x.device), None] for x, i in ((one, row), (other, col)))
        energy = energy + ((one - other).square().sum(dim=-1) * w.to(energy)).sum(dim=-1)
    return energy


def _quotient(x: Of, edges: Tensor, weight: Tensor | None, loop: float) -> Tensor:
    t = Tokens.of(x)
    degree = t.scale.new_full(t.x.shape[-2:-1], loop)
    for row, _, w in _pieces(edges, weight, t.x):
        degree = degree.index_add(0, row.to(degree.device), w.to(degree))
    by = degree.clamp_min(0).rsqrt().masked_fill(degree <= 0, 0.0)
    return _energy(t, edges, weight, by) / (2 * t.sums[1].square().sum(dim=-1))


def _pieces(
    edges: Tensor, weight: Tensor | None, x: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yields rows, columns and weights of the edges in pieces, without self-loops."""
    check_edges(edges, x.shape[-2])
    edges = edges.to(x.device)
    weight = torch.ones(edges.shape[1]) if weight is None else weight
    check_tensor("weight", weight)
    if weight.shape != (E := edges.shape[1:]):
        raise InputError(f"weight: expected one number an edge {(*E,)}, got {(*weight.shape,)}")
    other = edges[0] != edges[1]
    few = max(1, at_once(x) // 4)  # several copies of both ends are formed
    weights = weight.to(x.device)[other].split(few)
    for piece, w in zip(edges[:, other].split(few, dim=1), weights):
        yield piece[0], piece[1], w
