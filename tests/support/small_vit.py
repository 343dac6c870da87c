"""Small vision transformers with random weights, and aggregators to put into them."""

from functools import partial

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context, Inside, Instead
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.launch.config import compose_config

TINY = "deit_tiny_patch16_224"
DISTILLED = "deit_tiny_distilled_patch16_224"


class Swap(Instead):
    """A linear map over channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.linear(x)


class Scale(Inside):
    """Asks for the channels it will see."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((dim,), 2.0))

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        return self.scale * mixed


def vit(*aggregators: object, **options: object) -> ViT:
    """The same random weights in every call: aggregators are made after them."""
    torch.manual_seed(0)
    return ViT(list(aggregators), **{"name": TINY, "weights": "none", **options}).eval()


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(*shape, generator=generator, dtype=dtype)


def centered(gamma: float, **options: object) -> partial:
    return partial(Centered, gamma=gamma, **options)


def vit_contranorm() -> partial:
    options = compose_config(["aggregator=contranorm_vit"]).aggregator
    return partial(ContraNorm, **{k: v for k, v in options.items() if not k.startswith("_")})
