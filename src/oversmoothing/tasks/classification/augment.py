"""Augment training images as DeiT does (Touvron et al., ICML 2021), with timm's transforms."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from oversmoothing.data.checks import at_least, probability, require
from oversmoothing.data.images.convert import to_float
from oversmoothing.data.images.labelled_images import LabelledImages


class Augment:
    """Crops and resizes (bicubic), mirrors, applies RandAugment and erases, in this order.

    timm's generators are seeded from torch's global generator.

    Args:
        size: S, side of the square.
        scale: smallest and largest share of the image's area that a crop covers.
        ratio: smallest and largest ratio of width to height of a crop, before the resize.
        flip: probability of a mirror image.
        rand_augment: timm's name of a RandAugment policy (rand-m9-mstd0.5-inc1); null: none.
        erase: probability that a rectangle is replaced by noise. The noise is N(0, 1) after the
            backbone's normalisation, so its pixels may be outside [0, 1].

    Raises:
        InputError: a value out of its range, or a name that timm does not know.
    """

    def __init__(
        self,
        size: int = 224,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        rand_augment: str | None = "rand-m9-mstd0.5-inc1",
        erase: float = 0.25,
    ) -> None:
        from timm.data import create_transform  # takes seconds
        from timm.data.random_erasing import RandomErasing

        name = "a name as rand-m9-mstd0.5-inc1, or null for none"
        shares = _in_order(scale) and scale[1] <= 1
        require(
            "task.augment",
            **at_least(1, size=size),
            scale=(list(scale), shares, "[low, high] with 0 < low <= high <= 1"),
            ratio=(list(ratio), _in_order(ratio), "[low, high] with 0 < low <= high"),
            rand_augment=(repr(rand_augment), _is_known(rand_augment), name),
            **probability(flip=flip, erase=erase),
        )
        self.size = size
        self.distort = create_transform(
            size,
            is_training=True,
            scale=tuple(scale),
            ratio=tuple(ratio),
            hflip=flip,
            color_jitter=None,
            auto_augment=rand_augment,
            interpolation="bicubic",
            normalize=False,
        )
        self.erase = RandomErasing(erase, mode="pixel", device="cpu")

    def __call__(self, image: Image.Image, mean: Tensor, std: Tensor) -> Tensor:
        """Augments an image.

        Args:
            image: RGB.
            mean, std: of the backbone's normalisation.

        Shapes: mean and std (3, 1, 1) -> (3, S, S) float32.
        """
        with seeded(int(torch.randint(2**62, ()))):
            pixels = to_float(self.distort(image))
            return self.erase((pixels - mean) / std) * std + mean


def labelled_image(
    data: LabelledImages, augment: Augment, mean: Tensor, std: Tensor, id: str
) -> dict[str, Any]:
    """Reads and augments a training image: ``name``, ``image`` (3, S, S) and ``target`` ()."""
    image = augment(data.pil_image(id), mean, std)
    return {"name": id, "image": image, "target": torch.tensor(data.target(id))}


def _in_order(values: Sequence[float]) -> bool:
    return len(values) == 2 and 0 < values[0] <= values[1]


def _is_known(rand_augment: str | None) -> bool:
    """Whether timm knows a name."""
    from timm.data.auto_augment import rand_augment_transform

    if rand_augment is None:
        return True
    try:
        rand_augment_transform(rand_augment, {})
    except (AssertionError, ValueError, KeyError):
        return False
    return True


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds Python's and numpy's global generators, from which timm draws; restores them."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
