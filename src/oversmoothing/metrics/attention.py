"""Similarity of attention maps (ContraNorm, Sec. 3.1 and Fig. 2).

The paper follows Gong et al. 2021 and Wang et al. 2022 and gives no formula. It says that features
become alike as the similarity goes to 1. This is true if the rows of a map are compared, since
equal rows give equal tokens. The paper's other two measures, cosine of the features and effective
rank, are ``smoothness.mean_cosine`` and ``smoothness.effective_rank`` of the tokens.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from oversmoothing.metrics import smoothness


def map_similarity(A: Tensor) -> Tensor:
    """Mean cosine of the rows i < j of a map, mean over heads; 1 if all rows are alike.

    Computed in float64. Prefix tokens have rows too.

    Shapes: A (B, heads, N, N) -> (B,).
    """
    return smoothness.mean_cosine(A).mean(dim=-1)


def by_block(batches: Iterable[Iterable[Tensor | None]]) -> list[float | None]:
    """Mean :func:`map_similarity` over images, for every block; holds one map at a time.

    Args:
        batches: for every batch of images, the maps of the blocks in order, each (B, heads, N, N),
            or None for a block without attention, as from ``backbone.attention_maps(images)``.

    Returns:
        One value per block; None for a block without attention.
    """
    measured = [[None if A is None else map_similarity(A) for A in maps] for maps in batches]
    blocks = zip(*measured, strict=True)
    return [None if of[0] is None else torch.cat(of).mean().item() for of in blocks]
