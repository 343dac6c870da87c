"""Batches that depend on the seed and their number alone, and images to evaluate on."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from oversmoothing.data.batches import Batches, Example, Examples, stacked
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.errors import InputError


def train_batches(
    data: Examples,
    sample: Callable[[Any], Example],
    batch_size: int,
    iterations: int,
    seed: int,
    start: int = 0,
    rank: int = 0,
    world: int = 1,
    workers: int = 2,
    collate: Callable[[list[Example]], Example] = stacked,
    repeats: int = 1,
) -> Iterator[Example]:
    """Training batches number ``start`` … ``iterations - 1``.

    Batch i is the same whatever ``start``, ``world`` and ``workers`` are. Epochs are permutations
    of the training examples, strung together, so that none is left over. The global random
    generators are neither used nor changed.

    Args:
        data: whose ``on_error`` says what happens at a damaged file.
        sample: id -> example, a dict of tensors and other values, ``name`` among them; it may draw
            from torch's generator.
        batch_size: B of all processes together.
        iterations: where training ends.
        seed: of order and augmentation.
        start: first batch, to resume.
        rank: of this process, which gets the ``rank``-th slice of each batch.
        world: number of processes.
        workers: processes that read ahead, each with one thread; 0: none.
        collate: examples -> batch; by default tensors are stacked and other values listed.
        repeats: see ``Batches``.

    Yields:
        Batches of B / world examples.

    Raises:
        InputError: B that cannot be divided, or a damaged file.
    """
    if batch_size < 1 or batch_size % world:
        raise InputError(
            f"batch_size: expected a multiple of the {world} processes, got {batch_size}"
        )
    batches = Batches(data, sample, batch_size, seed, rank, world, collate, repeats)
    return _warned(_load(batches, range(start, iterations), workers))


def evaluation_items(
    data: ImageSet, ids: Sequence[str], workers: int = 2, masks: bool = True
) -> Iterator[dict[str, Any]]:
    """Images of any size, one by one, in the order of ``ids``.

    Args:
        data: where they are; its ``on_error`` does not count, as a mean over fewer images would be
            another number.
        ids: of training or validation images.
        workers: processes that read ahead; 0: none.
        masks: whether to read masks.

    Yields:
        ``name``, ``image`` (3, H, W) uint8, ``mask`` (H, W) uint8 or None, ``label`` (K,) or None
        where there is none.

    Raises:
        InputError: a damaged image or mask.
    """
    return _load(_Items(data, masks), ids, workers)


def _warned(batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Warns of images that were skipped: once a file, not once an epoch and worker."""
    known = set()
    for batch in batches:
        for message in batch.pop("skipped"):
            if message not in known:
                known.add(message)
                warnings.warn(f"{message}; another image takes its place", stacklevel=3)
        yield batch


class _Items(Dataset):
    """Id -> what evaluation needs."""

    def __init__(self, data: ImageSet, masks: bool) -> None:
        self.data, self.masks = data, masks

    def __getitem__(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "image": self.data.image(name),
            "mask": self.data.mask(name) if self.masks else None,
            "label": self.data.label(name) if name in self.data.present else None,
        }


class _Guarded(Dataset):
    """An error of bad input travels as a value: a worker would wrap its line in a traceback."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except InputError as error:
            return error


def _load(dataset: Dataset, indices: Sequence[Any], workers: int) -> Iterator[Any]:
    generator = torch.Generator()  # its own, or the loader would draw from the global one
    loader = DataLoader(
        _Guarded(dataset),
        batch_size=None,
        sampler=indices,
        num_workers=workers,
        collate_fn=_as_it_is,
        generator=generator,
    )
    for item in loader:
        if isinstance(item, InputError):
            raise item
        yield item


def _as_it_is(item: Any) -> Any:
    return item
