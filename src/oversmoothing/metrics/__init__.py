"""Measures of oversmoothing: functions of tokens, nodes and attention maps.

A measure has the name of its function in reports, files and logs.
"""

import warnings
from typing import Any

from oversmoothing.metrics.attention import (
    attention_cosine,
    attention_entropy,
    attention_gap,
    attention_similarity,
    attention_sink,
)
from oversmoothing.metrics.graphs import (
    dirichlet_energy,
    group_distance_ratio,
    mad,
    mad_gap,
    rayleigh_quotient,
    rayleigh_quotient_loops,
)
from oversmoothing.metrics.smoothness import (
    centered_stable_rank,
    cosine,
    effective_rank,
    effective_rank_without_outliers,
    largest_channel_share,
    largest_token_share,
    max_norm_ratio,
    mean_share,
    mean_share_without_outliers,
    norm,
    rank,
    rankme,
    sample_cosine,
    singular_values,
    stable_rank,
    token_variance,
)

__all__ = [
    "attention_cosine",
    "attention_entropy",
    "attention_gap",
    "attention_similarity",
    "attention_sink",
    "centered_stable_rank",
    "cosine",
    "dirichlet_energy",
    "effective_rank",
    "effective_rank_without_outliers",
    "group_distance_ratio",
    "largest_channel_share",
    "largest_token_share",
    "mad",
    "mad_gap",
    "max_norm_ratio",
    "mean_share",
    "mean_share_without_outliers",
    "norm",
    "rank",
    "rankme",
    "rayleigh_quotient",
    "rayleigh_quotient_loops",
    "sample_cosine",
    "singular_values",
    "stable_rank",
    "token_variance",
]
_OLD = {  # names of 0.1, which go with 0.3
    "map_similarity": attention_similarity,
    "mean_average_distance": mad,
    "mean_cosine": cosine,
    "mean_norm": norm,
}


def __getattr__(name: str) -> Any:
    if name not in _OLD:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _OLD[name]
    warnings.warn(f"metrics.{name} is metrics.{new.__name__} now", DeprecationWarning, stacklevel=2)
    return new
