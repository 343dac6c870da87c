"""What is in a training batch: a function of the seed and its number."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from oversmoothing.errors import InputError

Example = dict[str, Any]


class Examples(Protocol):
    """Training data: their name, their ids, and what happens at a damaged one."""

    name: str
    train: Sequence[Any]
    on_error: str  # stop or skip


class Batches(Dataset):
    """Number of a batch -> this process's slice of it, and ``skipped``: what could not be read.

    Args:
        data: ids.
        sample: id -> example, drawing from torch's generator.
        batch_size: of all processes together; a multiple of ``world``.
        seed: of order and augmentation.
        rank: of this process.
        world: number of processes.
        collate: examples -> batch.
        repeats: times that an id follows itself in the order of an epoch, which keeps its length
            (repeated augmentation: Hoffer et al., CVPR 2020).
    """

    def __init__(
        self,
        data: Examples,
        sample: Callable[[Any], Example],
        batch_size: int,
        seed: int,
        rank: int,
        world: int,
        collate: Callable[[list[Example]], Example],
        repeats: int = 1,
    ) -> None:
        self.data, self.sample, self.seed, self.collate = data, sample, seed, collate
        self.batch_size, self.slice = batch_size, batch_size // world
        self.first, self.repeats = rank * self.slice, repeats
        self.orders: dict[int, list[int]] = {}

    def __getitem__(self, i: int) -> Example:
        first = i * self.batch_size + self.first
        skipped: list[str] = []
        examples = [self._example(first + j, skipped) for j in range(self.slice)]
        return self.collate(examples) | {"skipped": skipped}

    def _example(self, position: int, skipped: list[str]) -> Example:
        """What is at a position in the endless row or, if it is damaged and may be skipped, the
        next of its epoch."""
        epoch, place = divmod(position, len(self.data.train))
        order = self._order(epoch)
        for k in range(len(order)):
            id = self.data.train[order[(place + k) % len(order)]]
            try:
                return self._drawn(id, position)
            except InputError as error:
                if self.data.on_error == "stop":
                    raise InputError(f"{error}, or skip such with data.on_error=skip") from error
                skipped.append(str(error))
        raise InputError(f"data {self.data.name}: not one training image can be read")

    def _drawn(self, id: Any, position: int) -> Example:
        with torch.random.fork_rng(devices=[]):
            # not torch.manual_seed, which would seed the accelerators too
            torch.default_generator.manual_seed(mixed_seed(self.seed, "augment", position))
            return self.sample(id)

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self.orders:
            generator = torch.Generator().manual_seed(mixed_seed(self.seed, "order", epoch))
            N = len(self.data.train)
            order = torch.randperm(N, generator=generator).repeat_interleave(self.repeats)[:N]
            self.orders = {epoch: order.tolist()}
        return self.orders[epoch]


def stacked(examples: list[Example]) -> Example:
    """Tensors stacked, all else listed, by key."""
    columns = {key: [example[key] for example in examples] for key in examples[0]}
    return {
        key: torch.stack(values) if isinstance(values[0], Tensor) else values
        for key, values in columns.items()
    }


def mixed_seed(*parts: object) -> int:
    """A seed for each combination."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1
