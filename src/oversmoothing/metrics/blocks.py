"""Measures of oversmoothing after every block of a network, as means over samples."""

from collections.abc import Iterable

import torch
from torch import Tensor

from oversmoothing.metrics.smoothness import effective_rank, mean_cosine, token_variance

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
