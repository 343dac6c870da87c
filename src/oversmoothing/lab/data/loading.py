"""Batches for training, independent of the number of processes, read ahead by workers."""

import contextlib
import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from oversmoothing.errors import InputError
from oversmoothing.lab.processes import cores

if TYPE_CHECKING:
    from oversmoothing.lab.data.image_set import ImageSet

Example = dict[str, Any]
Item = TypeVar("Item")


class Examples(Protocol):
    """The attributes of a data set that training needs."""

    name: str
    train: Sequence[Any]  # ids


@dataclass(eq=False)
class Batches:
    """Maps the number of a batch to this process's slice of the batch.

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
        size = self.batch_size // self.world
        first = i * self.batch_size + self.rank * size
        return self.collate([self._example(first + j) for j in range(size)])

    def _example(self, position: int) -> Example:
        """Reads the example at a position, counted over epochs."""
        epoch, place = divmod(position, len(self.data.train))
        id = self.data.train[self._order(epoch)[place]]
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


MOST_WORKERS = 16  # each holds two batches in shared memory


def train_batches(
    data: Examples,
    sample: Callable[[Any], Example],
    batch_size: int,
    iterations: int,
    seed: int,
    start: int = 0,
    rank: int = 0,
    world: int = 1,
    workers: int | None = 2,
    collate: Callable[[list[Example]], Example] = stacked,
    repeats: int = 1,
) -> Iterator[Example]:
    """Yields the training batches number ``start`` … ``iterations - 1``.

    Each process gets B / world examples of a batch. Batches do not depend on ``start`` or
    ``workers``. An epoch is a permutation of the training examples; batches may span two epochs, so
    that no example is left out. The global random generators are neither used nor changed.

    Args:
        data: training examples.
        sample: id -> example, a dict of tensors and other values, ``name`` among them; it may draw
            from torch's generator.
        batch_size: B, over all processes.
        iterations: number of batches of the whole training.
        seed: of order and augmentation.
        start: first batch, to resume.
        rank: of this process, which gets the ``rank``-th slice of each batch.
        world: number of processes.
        workers: see ``read_ahead``.
        collate: examples -> batch; by default, tensors are stacked and other values put into lists.
        repeats: see ``Batches``.

    Raises:
        InputError: B is not a multiple of ``world``, or a file is damaged.
    """
    if batch_size < 1 or batch_size % world:
        raise InputError(
            f"batch_size: expected a multiple of the {world} processes, got {batch_size}"
        )
    batches = Batches(data, sample, batch_size, seed, rank, world, collate, repeats)
    return read_ahead(batches, range(start, iterations), workers)


def evaluation_items(
    data: "ImageSet", ids: Sequence[str], workers: int | None = 2
) -> Iterator[dict[str, Any]]:
    """Yields images of any size, one by one, in the order of ``ids``.

    An item has ``name``, ``image`` (3, H, W) uint8, ``mask`` (H, W) uint8, and ``label`` (K,), None
    for an image without label.

    Raises:
        InputError: a damaged image or mask.
    """
    return read_ahead(partial(_item, data), ids, workers)


def read_ahead(
    read: Callable[[Any], Any], keys: Sequence[Any], workers: int | None
) -> Iterator[Any]:
    """Yields ``read(key)`` for every key, in order; raises the InputErrors of ``read``.

    If the process uses a GPU, tensors are in pinned memory, so that they can be copied
    asynchronously.

    Args:
        read: called in worker processes, or in this one if ``workers`` is 0.
        workers: number of worker processes, each with one thread; 0: none; None: one for each core,
            at most ``MOST_WORKERS``.
    """
    if workers is None:
        workers = min(cores(), MOST_WORKERS)
    # Workers end with the process that they are forks of, but not with one that a fork server works
    # for. That would be the start method of a command's jobs, and from Python 3.14 of any process.
    fork = "fork" if workers and sys.platform.startswith("linux") else None
    loader = DataLoader(
        _Guarded(read),
        batch_size=None,
        sampler=keys,
        num_workers=workers,
        multiprocessing_context=fork,
        collate_fn=_unchanged,
        pin_memory=torch.cuda.is_initialized(),
        generator=torch.Generator(),  # without one, the loader would draw from the global one
    )
    for item in loader:
        if isinstance(item, InputError):
            raise item
        yield item


def _item(data: "ImageSet", id: str) -> dict[str, Any]:
    return {
        "name": id,
        "image": data.image(id),
        "mask": data.mask(id),
        "label": data.label(id) if id in data.present else None,
    }


class _Guarded(Dataset):
    """Returns an InputError instead of raising it, since workers wrap errors in a traceback."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read = read

    def __getitem__(self, key: Any) -> Any:
        try:
            item = self.read(key)
            return _shared(item) if get_worker_info() else item
        except InputError as error:
            return error


def _shared(item: Any) -> Any:
    """Moves the tensors of an item to shared memory, from which the main process reads them.

    Otherwise the queue does so in another thread. An error there is lost, and the main process
    waits forever.
    """
    values = item.values() if isinstance(item, dict) else item if isinstance(item, tuple) else ()
    try:
        for tensor in (value for value in values if isinstance(value, Tensor)):
            tensor.share_memory_()
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"workers: no shared memory for a batch ({why}); free the disk or enlarge /dev/shm "
            "(docker: --shm-size), or take workers=0"
        ) from error
    return item


def _unchanged(item: Any) -> Any:
    return item
