"""Measures of oversmoothing: functions of tokens, nodes and attention maps.

A measure has the name of its function in reports, files and logs.
"""

from types import FunctionType

from oversmoothing.metrics.attention import attention_cosine as attention_cosine
from oversmoothing.metrics.attention import attention_entropy as attention_entropy
from oversmoothing.metrics.attention import attention_gap as attention_gap
from oversmoothing.metrics.attention import attention_similarity as attention_similarity
from oversmoothing.metrics.attention import attention_sink as attention_sink
from oversmoothing.metrics.graphs import dirichlet_energy as dirichlet_energy
from oversmoothing.metrics.graphs import group_distance_ratio as group_distance_ratio
from oversmoothing.metrics.graphs import mad as mad
from oversmoothing.metrics.graphs import mad_gap as mad_gap
from oversmoothing.metrics.graphs import rayleigh_quotient as rayleigh_quotient
from oversmoothing.metrics.graphs import rayleigh_quotient_loops as rayleigh_quotient_loops
from oversmoothing.metrics.smoothness import centered_stable_rank as centered_stable_rank
from oversmoothing.metrics.smoothness import cosine as cosine
from oversmoothing.metrics.smoothness import effective_rank as effective_rank
from oversmoothing.metrics.smoothness import (
    effective_rank_without_outliers as effective_rank_without_outliers,
)
from oversmoothing.metrics.smoothness import largest_channel_share as largest_channel_share
from oversmoothing.metrics.smoothness import largest_token_share as largest_token_share
from oversmoothing.metrics.smoothness import max_norm_ratio as max_norm_ratio
from oversmoothing.metrics.smoothness import mean_share as mean_share
from oversmoothing.metrics.smoothness import (
    mean_share_without_outliers as mean_share_without_outliers,
)
from oversmoothing.metrics.smoothness import norm as norm
from oversmoothing.metrics.smoothness import rank as rank
from oversmoothing.metrics.smoothness import rank_one_distance as rank_one_distance
from oversmoothing.metrics.smoothness import rankme as rankme
from oversmoothing.metrics.smoothness import sample_cosine as sample_cosine
from oversmoothing.metrics.smoothness import singular_values as singular_values
from oversmoothing.metrics.smoothness import stable_rank as stable_rank
from oversmoothing.metrics.smoothness import token_variance as token_variance

__all__ = [name for name, of in [*globals().items()] if isinstance(of, FunctionType)]
