"""Several seeds' networks in one: per-seed randomness and per-seed parameters."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator

DROPOUT_STREAM = 1 << 32  # keeps dropout's random numbers apart from those of the initial weights


class Seeds(nn.Module):
    """The seeds of a batch of networks, with a dropout generator each.

    Args:
        seeds: one a network.
        device: where dropout is drawn; CPU and GPU draw different numbers.
    """

    def __init__(self, seeds: list[int], device: torch.device) -> None:
        super().__init__()
        self.seeds = list(seeds)
        self.device = device
        self.generators = [torch.Generator(device).manual_seed(DROPOUT_STREAM + s) for s in seeds]

    def seeded(self) -> Iterator[int]:
        """Iterates over the seeds with torch's global generator seeded, and restores it."""
        for seed in self.seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                yield seed

    def keep(self, shape: torch.Size, rate: float) -> Tensor:
        """Dropout factors (S, *shape): 0 with probability ``rate``, else 1 / (1 − rate)."""
        draws = torch.empty(len(self.seeds), *shape, device=self.device)
        for draw, generator in zip(draws, self.generators):
            draw.uniform_(generator=generator)  # four times as fast as bernoulli_ on a CPU
        return (draws >= rate).to(draws.dtype).mul_(1 / (1 - rate))

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        """Shapes: x (S, ...) -> (S, ...)."""
        return x * self.keep(x.shape[1:], rate) if rate else x

    def get_extra_state(self) -> list[Tensor]:
        return [generator.get_state() for generator in self.generators]

    def set_extra_state(self, states: list[Tensor]) -> None:
        for generator, state in zip(self.generators, states):
            generator.set_state(state.cpu())


class PerSeed(nn.Module):
    """An aggregator for (S, N, C) tokens of S networks.

    Without parameters or buffers one instance serves all seeds at once; otherwise every seed has
    its own copy.

    Args:
        copies: one aggregator a seed.
    """

    def __init__(self, copies: list[Aggregator]) -> None:
        super().__init__()
        stateless = not any(True for _ in (*copies[0].parameters(), *copies[0].buffers()))
        self.copies = nn.ModuleList(copies[:1] if stateless else copies)
        self.site = copies[0].site
        self.stateless = stateless

    def forward(self, *args) -> Tensor:
        *tensors, context = args
        if self.stateless:
            return self.copies[0](*tensors, context)
        seeds = zip(self.copies, *tensors, strict=True)
        return torch.stack([copy(*of_seed, context) for copy, *of_seed in seeds])
