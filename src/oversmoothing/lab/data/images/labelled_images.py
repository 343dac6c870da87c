"""Data sets of images with one class each, for classification."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from oversmoothing.lab.data.images.convert import to_pil, to_tensor
from oversmoothing.lab.data.images.image_set import OnError


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Ids of training and validation images, and functions that read an id's image and class.

    Args:
        name: of the data set.
        classes: the K names; class k is ``classes[k]``.
        train: ids.
        val: ids, none of them in ``train``.
        pil_image: id -> RGB image; raises InputError at a damaged file.
        target: id -> k.
        checksum: short hash of all content that results depend on, see ``checksum``.
        on_error: what to do at a damaged training image: ``stop``, or ``skip`` it and use another.
    """

    name: str
    classes: tuple[str, ...]
    train: tuple[str, ...]
    val: tuple[str, ...]
    pil_image: Callable[[str], Image.Image]
    target: Callable[[str], int]
    checksum: str
    on_error: OnError = "stop"

    def image(self, id: str) -> Tensor:
        """The image as a tensor. Shapes: -> (3, H, W), uint8, RGB."""
        return to_tensor(self.pil_image(id))


class InMemory:
    """Holds the images and classes of a small data set.

    Shapes: images (n, 3, H, W) uint8, targets (n,) int64, in the order of ``ids``.
    """

    def __init__(self, ids: Sequence[str], images: Tensor, targets: Tensor) -> None:
        self.places = {id: i for i, id in enumerate(ids)}
        self.images, self.targets = images, targets

    def pil_image(self, id: str) -> Image.Image:
        """The image as RGB."""
        return to_pil(self.images[self.places[id]])

    def target(self, id: str) -> int:
        """The class, 0 … K − 1."""
        return int(self.targets[self.places[id]])


def checksum(*parts: object) -> str:
    """Hashes lists and plain values to twelve hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        for line in part if isinstance(part, (list, tuple)) else [part]:
            digest.update(json.dumps(line).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()[:12]
