"""Means over images or sentences of the measures of tokens and of attention maps, by block."""

from collections.abc import Iterable

import torch
from torch import Tensor

from oversmoothing.metrics.attention import attention_similarity
from oversmoothing.metrics.smoothness import Tokens, cosine, effective_rank, token_variance

OF_BLOCKS = (cosine, effective_rank, token_variance)


def measured(batches: Iterable[Iterable[Tensor]]) -> dict[str, list[float]]:
    """Means over samples of :data:`OF_BLOCKS`, for every block.

    Args:
        batches: for every batch of samples, the tokens after each block in order, each (B, N, C).

    Returns:
        ``cosine``, ``effective_rank`` and ``token_variance``, one value per block.
    """
    found: dict[str, list[Tensor]] = {measure.__name__: [] for measure in OF_BLOCKS}
    for blocks in batches:
        each = zip(*([measure(t) for measure in OF_BLOCKS] for t in map(Tokens, blocks)))
        for name, values in zip(found, each):
            found[name].append(torch.stack(values, dim=1))  # (B, depth)
    return {name: torch.cat(values).mean(dim=0).tolist() for name, values in found.items()}


def similarities(batches: Iterable[Iterable[Tensor | None]]) -> list[float | None]:
    """Mean :func:`attention_similarity` over images, for every block; holds one map at a time.

    Args:
        batches: for every batch of images, the maps of the blocks in order, each (B, heads, N, N),
            or None for a block without attention, as from ``backbone.attention_maps(images)``.

    Returns:
        One value per block; None for a block without attention.
    """
    found = [[None if A is None else attention_similarity(A) for A in maps] for maps in batches]
    blocks = zip(*found, strict=True)
    return [None if of[0] is None else torch.cat(of).mean().item() for of in blocks]
