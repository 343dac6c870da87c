"""Products of the input features with weights."""

import torch
from torch import Tensor

from oversmoothing.lab.backbones.gcn.sparse import SparseMatrix
from oversmoothing.lab.backbones.per_seed import Seeds


class Features:
    """Input features with dropout, times weights; the product of ``matmul`` serves all seeds.

    Sparse features stay sparse under dropout.

    Args:
        x: features, dense or CSR, (N, F).
        num_seeds: S.

    Attributes:
        drawn: shape of the dropout mask of one seed.
    """

    def __init__(self, x: Tensor, num_seeds: int) -> None:
        N, F = self.drawn = x.shape
        self.dense = None if x.is_sparse_csr else x
        if self.dense is not None:
            return
        rows = torch.repeat_interleave(x.crow_indices().diff().long())
        edges = torch.stack([rows, x.col_indices().long()])
        self.matrix = SparseMatrix(edges, (N, F), num_seeds)
        self.values = x.values().clone()  # a view of x could not be compiled
        self.drawn = self.values.shape

    def matmul(self, weight: Tensor, rate: float | Tensor | None, seeds: Seeds) -> Tensor:
        """Computes dropout(x) @ weight, without dropout if the rate is None.

        Shapes: weight (S, F, C) -> (S, N, C).
        """
        x = self.values if self.dense is None else self.dense
        x = x if rate is None else x * seeds.keep(x.shape, rate)
        dense = self.dense is not None
        return x.to(weight.dtype) @ weight if dense else self.matrix.prepared(x)(weight)
