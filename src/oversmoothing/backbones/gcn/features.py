"""Products of the input features with weights."""

import torch
from torch import Tensor

from oversmoothing.backbones.gcn.products import times
from oversmoothing.backbones.gcn.sparse import SparseMatrix
from oversmoothing.backbones.per_seed import Seeds


class Features:
    """Input features with dropout, times weights; the product of ``matmul`` serves all seeds.

    Sparse features stay sparse under dropout.

    Args:
        x: features, dense or CSR, (N, F).
        num_seeds: S.
    """

    def __init__(self, x: Tensor, num_seeds: int) -> None:
        N, F = x.shape
        self.dense = None if x.is_sparse_csr else x
        if self.dense is not None:
            return
        rows = torch.repeat_interleave(x.crow_indices().diff().long())
        edges = torch.stack([rows, x.col_indices().long()])
        of_seed = torch.arange(num_seeds, device=x.device)[:, None]
        # A block for each seed, whose rows alternate: the products have the order (N, S, C).
        rows, columns = rows * num_seeds + of_seed, edges[1] + F * of_seed
        blocks = torch.stack([rows.flatten(), columns.flatten()])
        self.matrix = SparseMatrix(blocks, (num_seeds * N, num_seeds * F))
        self.values = x.values()

    def matmul(self, weight: Tensor, rate: float, seeds: Seeds) -> Tensor:
        """Computes dropout(x) @ weight. Shapes: weight (S, F, C) -> (S, N, C)."""
        S, F, C = weight.shape
        if self.dense is not None:
            factors = seeds.keep(self.dense.shape, rate) if rate else None
            return times(self.dense.expand(S, -1, -1), weight, factors)
        values = self.values.expand(S, -1)
        if rate:
            values = values * seeds.keep(self.values.shape, rate)
        product = self.matrix.prepared(values.flatten())
        return product(weight.view(S * F, C)).view(-1, S, C).transpose(0, 1)
