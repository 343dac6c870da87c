"""What is in a training batch: a function of the seed and its number."""

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from oversmoothing.data.image_set import ImageSet
from oversmoothing.errors import InputError

Transform = Callable[[Tensor], tuple[Tensor, Tensor]]


class Batches(Dataset):
    """Number of a batch -> this process's slice of it, and ``skipped``: what could not be read.

    Args:
        data: images and labels.
        augment: drawing from torch's generator.
        batch_size: of all processes together; a multiple of ``world``.
        seed: of order and augmentation.
        rank: of this process.
        world: number of processes.
    """

    def __init__(
        self, data: ImageSet, augment: Transform, batch_size: int, seed: int, rank: int, world: int
    ) -> None:
        self.data, self.augment, self.seed = data, augment, seed
        self.batch_size, self.slice = batch_size, batch_size // world
        self.first = rank * self.slice
        self.orders: dict[int, list[int]] = {}

    def __getitem__(self, i: int) -> dict[str, Any]:
        first = i * self.batch_size + self.first
        skipped: list[str] = []
        samples = [self._sample(first + j, skipped) for j in range(self.slice)]
        names, images, boxes = zip(*samples)
        return {
            "image": torch.stack(images),
            "label": torch.stack([self.data.label(name) for name in names]),
            "box": torch.stack(boxes),
            "name": list(names),
            "skipped": skipped,
        }

    def _sample(self, position: int, skipped: list[str]) -> tuple[str, Tensor, Tensor]:
        """Id, image and box at a position in the endless row of images."""
        name, image = self._readable(position, skipped)
        with torch.random.fork_rng(devices=[]):
            # not torch.manual_seed, which would seed the accelerators too
            torch.default_generator.manual_seed(_mix(self.seed, "augment", position))
            return name, *self.augment(image)

    def _readable(self, position: int, skipped: list[str]) -> tuple[str, Tensor]:
        """The image at a position or, if damaged ones may be skipped, the next of its epoch."""
        epoch, place = divmod(position, len(self.data.train))
        order = self._order(epoch)
        for k in range(len(order)):
            name = self.data.train[order[(place + k) % len(order)]]
            try:
                return name, self.data.image(name)
            except InputError as error:
                if self.data.on_error == "stop":
                    raise InputError(f"{error}, or skip such with data.on_error=skip") from error
                skipped.append(str(error))
        raise InputError(f"data {self.data.name}: not one training image can be read")

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self.orders:
            generator = torch.Generator().manual_seed(_mix(self.seed, "order", epoch))
            order = torch.randperm(len(self.data.train), generator=generator)
            self.orders = {epoch: order.tolist()}
        return self.orders[epoch]


def _mix(*parts: object) -> int:
    """A seed for each combination."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1
