"""Norm with learned centering: GraphNormv2 (Scholkemper et al., Residual Connections and
Normalization Can Provably Prevent Oversmoothing in GNNs, ICLR 2025, arXiv:2406.02997).

.. math:: x − \\frac{1}{n} (U τ)(U τ)ᵀ x, \\quad 1 = u_1 + … + u_k + u_{rest}

in each channel, then GraphNorm's scaling. Plain centering, x − 1 1ᵀ x / n, also takes away a part
of the eigenvectors of the adjacency that carry the signal. Here u_1 … u_k are the parts of the
all-ones vector 1 along eigenvectors of D^-½ A D^-½, u_rest is what remains, and the learned τ says
how much each part takes away. τ = 1, the start, is plain centering.
"""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, Context
from oversmoothing.aggregators.checks import check_counts, mean_of_tokens, padding
from oversmoothing.aggregators.graphnorm import GraphNorm
from oversmoothing.aggregators.neighbours import Neighbours

STEPS = 64  # products with the adjacency for a graph; outer eigenvectors are then exact


class GraphNormV2(GraphNorm):
    """GraphNorm that learns for parts of the graph's spectrum how much their mean goes.

    Parts are found once per graph. They have no signs and need no choice among eigenvectors of one
    eigenvalue, so renaming nodes renames the result; the paper learns coefficients of eigenvectors.
    Without a graph, the mean alone remains.

    Args:
        dim: channels C.
        parts: k, those with eigenvalues of the largest size.
        eps: added to the variance.

    Raises:
        InputError: k is below 1, or eps is negative.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    reads_edges = True

    def __init__(self, dim: int, parts: int = 8, eps: float = 1e-5) -> None:
        super().__init__(dim, eps)
        check_counts(parts=parts)
        del self.mean_scale
        self.tau, self.parts = nn.Parameter(torch.ones(dim, parts + 1)), parts

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        mask, precise = padding(context), x.to(torch.promote_types(x.dtype, torch.float32))
        tau = self.tau.to(precise.dtype)
        with torch.autocast(x.device.type, enabled=False):
            if context.neighbours is None:
                along = tau[:, -1]
            else:
                along = parts_of_ones(context.neighbours, self.parts).to(precise.dtype) @ tau.mT
            centered = precise - along * mean_of_tokens(along * precise, mask)
            scaled = self.scaled(centered, mask)
        return scaled.to(torch.promote_types(x.dtype, self.weight.dtype))


@torch.no_grad()
def parts_of_ones(graph: Neighbours, count: int) -> Tensor:
    """Returns u_1 … u_count and what remains of the all-ones vector; parts that are missing are 0.

    Lanczos's method begins with the all-ones vector, so it finds one direction per eigenvalue.

    Shapes: -> (N, count + 1), in float64.
    """
    if count not in graph.parts:
        basis, small = _lanczos(_symmetric(graph), graph.num_nodes)
        values, vectors = torch.linalg.eigh(small)
        first = vectors[:, values.abs().argsort(descending=True)[:count]]
        found = graph.num_nodes**0.5 * (basis @ first) * first[0]
        found = torch.nn.functional.pad(found, (0, count - found.shape[1]))
        graph.parts[count] = torch.cat([found, 1 - found.sum(dim=1, keepdim=True)], dim=1)
    return graph.parts[count]


def _symmetric(graph: Neighbours) -> Tensor:
    """Returns D^-½ A D^-½, sparse, of the mean of A and Aᵀ."""
    N, both = graph.num_nodes, torch.stack([graph.rows, graph.columns])
    ones = torch.ones(2 * both.shape[1], dtype=torch.float64, device=both.device) / 2
    edges = torch.cat([both, both.flip(0)], dim=1)
    rows, columns = edges
    degree = ones.new_zeros(N).index_add_(0, rows, ones)
    values = ones / (degree[rows] * degree[columns]).sqrt()
    return torch.sparse_coo_tensor(edges, values, (N, N), check_invariants=False).coalesce()


def _lanczos(A: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Returns an orthonormal basis Q (N, m) of 1, A 1, A² 1, …, and Qᵀ A Q."""
    q = torch.full((num_nodes,), num_nodes**-0.5, dtype=torch.float64, device=A.device)
    basis, images = [q], []
    for _ in range(min(STEPS, num_nodes)):
        images.append(rest := A @ basis[-1])
        Q = torch.stack(basis, dim=1)
        for _ in range(2):  # once more against rounding
            rest = rest - Q @ (Q.mT @ rest)
        if (size := rest.norm()) < 1e-10 or len(basis) == num_nodes:
            break
        basis.append(rest / size)
    Q = torch.stack(basis[: len(images)], dim=1)
    small = Q.mT @ torch.stack(images, dim=1)
    return Q, (small + small.mT) / 2
