"""Images with one class each."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from oversmoothing.data.images.image_set import OnError


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Ids of two parts, and what belongs to an id; pixels are read when they are asked for.

    Args:
        name: of the data set.
        classes: the K names; class k is ``classes[k]``.
        train: ids.
        val: ids, none of them in ``train``.
        read: id -> image, (3, H, W) uint8 RGB; raises InputError at a damaged file.
        class_of: id -> k.
        checksum: short hash of what decides numbers, see ``checksum``.
        on_error: of training images that cannot be read: ``skip`` takes another one in its place.
    """

    name: str
    classes: tuple[str, ...]
    train: tuple[str, ...]
    val: tuple[str, ...]
    read: Callable[[str], Tensor]
    class_of: Callable[[str], int]
    checksum: str
    on_error: OnError = "stop"

    def image(self, id: str) -> Tensor:
        """Shapes: -> (3, H, W), uint8, RGB. InputError: the file is missing or damaged."""
        return self.read(id)

    def target(self, id: str) -> int:
        """Class k, 0 … K − 1."""
        return self.class_of(id)


class InMemory:
    """Images and classes of a small set by id, for ``read`` and ``class_of``.

    Shapes: images (n, 3, H, W) uint8, targets (n,) int64.
    """

    def __init__(self, ids: Sequence[str], images: Tensor, targets: Tensor) -> None:
        self.places = {id: i for i, id in enumerate(ids)}
        self.images, self.targets = images, targets

    def read(self, id: str) -> Tensor:
        """Shapes: -> (3, H, W)."""
        return self.images[self.places[id]]

    def class_of(self, id: str) -> int:
        """0 … K − 1."""
        return int(self.targets[self.places[id]])


def checksum(*parts: object) -> str:
    """Short hash of lists and plain values."""
    digest = hashlib.sha256()
    for part in parts:
        for line in part if isinstance(part, (list, tuple)) else [part]:
            digest.update(json.dumps(line).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()[:12]
