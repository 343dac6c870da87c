"""Edges of a graph network: DropEdge, the normalised adjacency with self-loops, and CSR."""

import torch
from torch import Tensor

_FACTORS = (0x5851F42D4C957F2D, 0x14057B7EF767814F)  # odd


def drop_edges(edge_index: Tensor, rate: float) -> Tensor:
    """Draws which edges to keep, boolean (E,), with equal results for both directions of an edge.

    Self-loops are always kept. Each pair of nodes is hashed with two random numbers that are the
    same for all pairs. So no search for the reverse direction is needed, and the order of the edges
    does not matter.
    """
    low, high = edge_index.amin(dim=0), edge_index.amax(dim=0)
    salts = torch.randint(1 << 62, (2,), device=edge_index.device)
    bits = _scrambled(_scrambled(low ^ salts[0]) ^ high ^ salts[1])
    kept = (bits >> 11 & (1 << 52) - 1).double() * 2.0**-52 >= rate
    return kept | (low == high)


def _scrambled(bits: Tensor) -> Tensor:
    """Hashes 64-bit integers by multiplications, which wrap around, and shifts."""
    for factor in _FACTORS:
        bits = bits * factor
        bits = bits ^ (bits >> 32 & 0xFFFFFFFF)
    return bits


def normalised(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, kind: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Returns edges and weights of D⁻¹(A + I) (``row``) or D^-½(A + I)D^-½ (``symmetric``).

    D has the row sums of A + I. A self-loop of A is added to that of I, as in ``backbone=gcn``.

    Args:
        edge_index: source and target of every edge, (2, E).
        edge_weight: (E,); None: all 1.
        num_nodes: N.
        kind: ``row`` or ``symmetric``.
        dtype: of the new weights.
    """
    loops = torch.arange(num_nodes, device=edge_index.device)
    weight = torch.ones(edge_index.shape[1] + num_nodes, dtype=dtype, device=edge_index.device)
    if edge_weight is not None:
        weight[: len(edge_weight)] = edge_weight
    source, target = edge_index = torch.cat([edge_index, loops.expand(2, -1)], dim=1)
    degree = weight.new_zeros(num_nodes).index_add(0, target, weight)
    if kind == "row":
        return edge_index, weight / degree[target]
    return edge_index, weight / (degree[source] * degree[target]).sqrt()


def as_csr(edge_index: Tensor, edge_weight: Tensor | None, like: Tensor) -> Tensor:
    """Returns the matrix that a convolution multiplies by the features, in CSR.

    Args:
        edge_index: source and target of every edge, (2, E).
        edge_weight: (E,); None: all 1.
        like: the features, (N, C).
    """
    N, _ = like.shape
    source, target = edge_index
    order = torch.argsort(target, stable=True)
    starts = torch.searchsorted(target[order], torch.arange(N + 1, device=target.device))
    ones = torch.ones(source.shape, dtype=like.dtype, device=like.device)
    values = ones if edge_weight is None else edge_weight.to(like.dtype)[order]
    size = (N, N)
    return torch.sparse_csr_tensor(starts, source[order], values, size, check_invariants=False)
