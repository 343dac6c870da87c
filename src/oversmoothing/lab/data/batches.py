"""Chooses examples: the batches of a training, and evenly spaced samples."""

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from oversmoothing.errors import InputError

Example = dict[str, Any]
Item = TypeVar("Item")


class Examples(Protocol):
    """The attributes of a data set that training needs."""

    name: str
    train: Sequence[Any]  # ids
    on_error: str  # stop at a damaged example, or skip it


@dataclass(eq=False)
class Batches:
    """Maps the number of a batch to this process's slice of the batch.

    The slice also has the key ``skipped``, with one message for each damaged example.

    Args:
        repeats: number of consecutive uses of an id; the length of an epoch does not change
            (repeated augmentation: Hoffer et al., CVPR 2020).
        others: see ``train_batches``.
    """

    data: Examples
    sample: Callable[[Any], Example]
    batch_size: int
    seed: int
    rank: int
    world: int
    collate: Callable[[list[Example]], Example]
    repeats: int = 1

    def __post_init__(self) -> None:
        self.orders: dict[int, list[int]] = {}

    def __call__(self, i: int) -> Example:
        size, skipped = self.batch_size // self.world, []
        first = i * self.batch_size + self.rank * size
        examples = [self._example(first + j, skipped) for j in range(size)]
        return self.collate(examples) | {"skipped": skipped}

    def _example(self, position: int, skipped: list[str]) -> Example:
        """Reads the example at a position, counted over epochs; skips damaged ones if allowed."""
        epoch, place = divmod(position, len(self.data.train))
        order = self._order(epoch)
        for k in range(len(order)):
            id = self.data.train[order[(place + k) % len(order)]]
            try:
                return self._drawn(id, position)
            except InputError as error:
                if self.data.on_error == "stop":
                    raise InputError(f"{error}, or set data.on_error=skip") from error
                skipped.append(str(error))
        raise InputError(
            f"data {self.data.name}: no training image can be read; fetch the data again"
        )

    def _drawn(self, id: Any, position: int) -> Example:
        with torch.random.fork_rng(devices=[]):  # torch.manual_seed would seed accelerators too
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
    """Stacks the tensors of each key, and collects other values in lists."""
    columns = {key: [example[key] for example in examples] for key in examples[0]}
    return {
        key: torch.stack(values) if isinstance(values[0], Tensor) else values
        for key, values in columns.items()
    }


def mixed_seed(*parts: object) -> int:
    """Hashes several values to one seed."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def evenly_spaced(items: Sequence[Item], number: int) -> list[Item]:
    """Chooses ``number`` evenly spaced items, beginning with the first; all if there are fewer."""
    count = min(number, len(items))
    return [items[i * len(items) // count] for i in range(count)]


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds Python's and numpy's global generators, and restores their states."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
