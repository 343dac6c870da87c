"""Every aggregator in configs/aggregator, small."""

from dataclasses import replace
from pathlib import Path

import torch
from hydra.utils import instantiate

from oversmoothing.aggregators.base import Aggregator, Context, make
from oversmoothing.lab.launch.config import compose_config

CONFIGS = Path(__file__).parents[2] / "configs" / "aggregator"
EVERY = [path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml")]
C = 8
BASES = 4  # fewer than the tokens


def build(name: str) -> Aggregator:
    """An aggregator of C channels in float64."""
    torch.manual_seed(0)
    config = compose_config([f"aggregator={name}"]).aggregator
    fewer = {"num_bases": BASES} if "num_bases" in config else {}
    return make(instantiate(config, **fewer), C).double()


def apply(aggregator: Aggregator, x: torch.Tensor, context: Context) -> torch.Tensor:
    """Its output; one inside the attention gets (11ᵀ/N + I) x / 2 as the mixed tokens, and one
    that changes the map that of x with itself, of one head."""
    if aggregator.site != "inside":
        return aggregator(x, context)
    if aggregator.reads_maps:
        maps = (x @ x.mT).softmax(dim=-1).unsqueeze(-3)
        return (aggregator.maps(maps, Context()) @ x.unsqueeze(-3)).squeeze(-3)
    context = replace(context, tokens=x)
    return aggregator((x.mean(dim=-2, keepdim=True) + x) / 2, x, context)
