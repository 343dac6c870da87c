"""Measures of oversmoothing, and of segmentations.

The measures of tokens, nodes and attention maps are functions of this package, the others of its
modules.
"""

from oversmoothing.metrics.attention import map_similarity
from oversmoothing.metrics.smoothness import (
    dirichlet_energy,
    effective_rank,
    mean_average_distance,
    mean_cosine,
    mean_norm,
    mean_share,
    rank,
    singular_values,
    token_variance,
)

__all__ = [
    "dirichlet_energy",
    "effective_rank",
    "map_similarity",
    "mean_average_distance",
    "mean_cosine",
    "mean_norm",
    "mean_share",
    "rank",
    "singular_values",
    "token_variance",
]
