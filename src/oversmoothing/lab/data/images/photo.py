"""One image to predict on, from a file or from a data set, with its label and mask if known."""

from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F
from PIL import ImageOps
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.data.images.convert import to_tensor
from oversmoothing.lab.data.images.files import read_mask, read_pil
from oversmoothing.lab.data.images.image_set import ImageSet


@dataclass(frozen=True, eq=False)
class Photo:
    """An image with its label and mask.

    Args:
        name: of the file, without folder and suffix.
        image: (3, H, W) uint8.
        label: image-level label (K,); None: unknown.
        truth: mask (H, W) uint8; None: unknown.
    """

    name: str
    image: Tensor
    label: Tensor | None
    truth: Tensor | None


def open_photo(
    word: str, data: ImageSet | None, truths: Path | None = None, longest: int | None = None
) -> Photo:
    """Reads an image, and its label and mask if the data set has them.

    Args:
        word: a file, or an id of the data set. A file that belongs to the data set is recognised.
        data: the data set to look in; None: none.
        truths: folder of masks ``<name>.png``, used instead of those of the data set.
        longest: largest side in pixels; larger images are shrunk. None: no limit.

    Raises:
        InputError: no such image, a damaged file, or a mask of another size.
    """
    path, id = Path(word), _id(word, data)
    if id is None and not path.exists():
        raise InputError(f"{word}: no such image; expected a file, or an id of the run's data")
    upright = ImageOps.exif_transpose  # as viewers show a photo; masks of data sets lie as stored
    image = to_tensor(upright(read_pil(path))) if id is None else data.image(id)
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
    """Finds the id of an image in the data set; None if it has no such image."""
    path, files = Path(word), data.image_files if data else {}
    if not path.exists():
        return word if word in files else None
    file = files.get(path.stem)
    return path.stem if file and path.samefile(file) else None


def _shrunk(
    image: Tensor, truth: Tensor | None, longest: int | None
) -> tuple[Tensor, Tensor | None]:
    """Shrinks image and mask until no side is longer than ``longest``."""
    factor = (longest or max(image.shape[1:])) / max(image.shape[1:])
    if factor >= 1:
        return image, truth
    size = [max(1, round(side * factor)) for side in image.shape[1:]]
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    if truth is not None:
        truth = F.interpolate(truth[None, None].float(), size, mode="nearest")[0, 0].byte()
    return small.round().clamp(0, 255).byte(), truth
