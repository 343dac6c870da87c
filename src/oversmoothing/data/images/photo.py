"""An image to predict on: any file, or an id of a data set, with what is known of it."""

from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.images.images import read_image, read_mask
from oversmoothing.errors import InputError


@dataclass(frozen=True, eq=False)
class Photo:
    """An image, and what its data set says of it.

    Args:
        name: without folder and suffix.
        image: (3, H, W) uint8.
        label: (K,), its image-level label; None: unknown.
        truth: (H, W) uint8, its mask; None: unknown.
    """

    name: str
    image: Tensor
    label: Tensor | None
    truth: Tensor | None


def open_photo(
    word: str, data: ImageSet | None, truths: Path | None = None, longest: int | None = None
) -> Photo:
    """Reads an image.

    Args:
        word: a file, or an id of the data set; a file of the data set is known as that.
        data: that may know the image; None: nothing does.
        truths: folder of masks ``<name>.png``, in the place of those of the data set.
        longest: pixels that a side has at most; larger images are shrunk. None: no limit.

    Raises:
        InputError: no such image, a damaged file, or a mask of another size.
    """
    path, id = Path(word), _id(word, data)
    if id is None and not path.exists():
        raise InputError(f"{word}: no such image; expected a file, or an id of the run's data")
    image = read_image(path) if id is None else data.image(id)
    label = data.label(id) if id is not None and id in data.present else None
    file = data.mask_files.get(id) if id is not None else None
    truth = data.mask(id) if file else None
    if truths:
        file = truths / f"{path.stem}.png"
        truth = read_mask(file)
    if truth is not None and truth.shape != image.shape[1:]:
        raise InputError(f"{file}: expected a mask as large as {word}")
    image, truth = _shrunk(image, truth, longest)
    return Photo(path.stem, image, label, truth)


def _id(word: str, data: ImageSet | None) -> str | None:
    """Of the data set, where it has this image."""
    path = Path(word)
    if data is None:
        return None
    if not path.exists():
        return word if word in data.image_files else None
    file = data.image_files.get(path.stem)
    return path.stem if file and path.samefile(file) else None


def _shrunk(
    image: Tensor, truth: Tensor | None, longest: int | None
) -> tuple[Tensor, Tensor | None]:
    """Both with sides of at most ``longest``."""
    factor = (longest or max(image.shape[1:])) / max(image.shape[1:])
    if factor >= 1:
        return image, truth
    size = [max(1, round(side * factor)) for side in image.shape[1:]]
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    if truth is not None:
        truth = F.interpolate(truth[None, None].float(), size, mode="nearest")[0, 0].byte()
    return small.round().clamp(0, 255).byte(), truth
