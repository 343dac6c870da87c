"""How alike the attention maps have become (ContraNorm, Sec. 3.1 and Fig. 2).

The paper follows Gong et al. 2021 and Wang et al. 2022; its text has no formula. It says that
features grow alike as the similarity goes to 1, which holds where the rows of a map are compared:
equal rows make equal tokens. Its other two measures, cosine of the features and effective rank,
are ``smoothness.mean_cosine`` and ``smoothness.effective_rank`` of the tokens.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from oversmoothing.metrics import smoothness


def map_similarity(A: Tensor) -> Tensor:
    """Mean cosine of the rows i < j of a map, mean over heads; 1 where all tokens get the same.

    In float64; rows are what the tokens, prefix included, attend to.

    Shapes: A (B, heads, N, N) -> (B,).
    """
    return smoothness.mean_cosine(A).mean(dim=-1)


def by_block(batches: Iterable[Iterable[Tensor | None]]) -> list[float | None]:
    """Mean :func:`map_similarity` over images, block by block, one map in memory at a time.

    Args:
        batches: the maps of every block in turn, each (B, heads, N, N), or None for a block
            without attention, as ``backbone.attention_maps(images)`` gives them.

    Returns:
        One value a block; None for a block without attention.
    """
    measured = [[None if A is None else map_similarity(A) for A in maps] for maps in batches]
    blocks = zip(*measured, strict=True)
    return [None if of[0] is None else torch.cat(of).mean().item() for of in blocks]
