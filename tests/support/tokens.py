"""Random tokens."""

import torch
from torch import Tensor


def random_tokens(*shape: int, seed: int = 0) -> Tensor:
    """The same numbers of a normal distribution in every call, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
