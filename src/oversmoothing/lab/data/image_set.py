"""Data sets of images with masks or classes: their ids, class names, files and conversions."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import yaml
from PIL import Image
from torch import Tensor

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.files import short_sha256

Labels = dict[str, tuple[int, ...]]  # id -> label values 1 … K in ascending order
Zero = Literal["background", "ignored"]
IGNORE = 255  # in a mask: the pixel is not counted; in a prediction: no decision


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Ids of training and validation images, and the files of each id.

    Files are read on request.

    Args:
        name: of the data set.
        classes: the K names; label value k is ``classes[k - 1]``.
        train: ids, each with at least one class.
        val: ids.
        image_files: id -> JPEG.
        mask_files: id -> palette PNG; ids may be missing.
        present: id -> label values of the classes in the image; ids of ``val`` may be missing.
        checksum: short hash of names, lists and labels; pixels are not hashed.
        zero: meaning of value 0 in a mask file: ``background``, a label before the classes, or
            ``ignored``, as 255 always is. Without background, :meth:`mask` counts the classes
            from 0.
    """

    name: str
    classes: tuple[str, ...]
    train: tuple[str, ...]
    val: tuple[str, ...]
    image_files: Mapping[str, str]
    mask_files: Mapping[str, str]
    present: Labels
    checksum: str
    zero: Zero = "background"

    @property
    def background(self) -> bool:
        """Whether label 0 is background, which ``classes`` does not list."""
        return self.zero == "background"

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the values 0, 1, … of :meth:`mask`: the labels that a network predicts."""
        return ("background", *self.classes) if self.background else self.classes

    def pil_image(self, id: str) -> Image.Image:
        """Reads the image as RGB; raises InputError if the file is missing or damaged."""
        return read_pil(self.image_files[id])

    def image(self, id: str) -> Tensor:
        """Reads the image as a tensor (3, H, W), uint8, RGB; raises as ``pil_image``."""
        return to_tensor(self.pil_image(id))

    def mask(self, id: str) -> Tensor:
        """Reads label values, 0 for the first of ``label_names``, and 255. -> (H, W), uint8.

        Raises:
            InputError: the mask is missing or damaged, has another size than the image, or holds
                other values.
        """
        if id not in self.mask_files:
            raise InputError(f"data {self.name}: {id} has no mask; check data.masks")
        path = self.mask_files[id]
        mask = read_mask(path)
        self._require_size(id, tuple(mask.shape))
        highest = len(self.classes)
        if ((mask > highest) & (mask != IGNORE)).any():
            check_values(mask.unique().tolist(), highest, path)
        if self.zero == "ignored":
            return (mask - 1).masked_fill_((mask == 0) | (mask == IGNORE), IGNORE)
        return mask

    def label(self, id: str) -> Tensor:
        """Returns 1 for each class in the image, (K,) float32; raises InputError if unlabelled."""
        if id not in self.present:
            raise InputError(f"data {self.name}: {id} has no image-level label; check data.labels")
        label = torch.zeros(len(self.classes))
        label[[k - 1 for k in self.present[id]]] = 1
        return label

    def require_masks(self, *parts: Literal["train", "val"]) -> None:
        """Raises InputError unless every image of these parts has a mask; opens no file."""
        for part in parts:
            ids = getattr(self, part)
            if missing := [id for id in ids if id not in self.mask_files]:
                raise InputError(
                    f"data {self.name}: {len(missing)} of {len(ids)} {part} images have no mask "
                    f"(first {missing[0]}); check data.masks and data.{part}"
                )

    def require_labels(self, ids: Iterable[str]) -> None:
        """Raises InputError unless every one of these images has an image-level label."""
        if missing := [id for id in ids if id not in self.present]:
            raise InputError(
                f"data {self.name}: {len(missing)} images have no image-level label (first "
                f"{missing[0]}), which CAMs need; check data.labels, or choose data=voc, coco or "
                "scenes"
            )

    def require_sizes(self, ids: Iterable[str]) -> None:
        """Raises InputError unless every mask has the size of its image.

        Only headers are read, about a millisecond per image, so that a wrong mask is found before
        the training. Ids without a mask are ignored.
        """
        for id in ids:
            if id in self.mask_files:
                self._require_size(id, read_size(self.mask_files[id]))

    def _require_size(self, id: str, found: tuple[int, ...]) -> None:
        size = read_size(self.image_files[id])
        if found != size:
            raise InputError(
                f"{self.mask_files[id]}: {found[0]} x {found[1]} pixels, but its image has "
                f"{size[0]} x {size[1]}; fetch both again"
            )


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
    """

    name: str
    classes: tuple[str, ...]
    train: tuple[str, ...]
    val: tuple[str, ...]
    pil_image: Callable[[str], Image.Image]
    target: Callable[[str], int]
    checksum: str

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


def check_values(values: Sequence[int], highest: int, path: str) -> None:
    """Raises InputError unless all values of a mask are at most ``highest``, or 255."""
    if wrong := [value for value in values if highest < value != IGNORE]:
        raise InputError(
            f"{path}: label values {wrong[:5]}, expected 0 to {highest} or {IGNORE}; "
            "set data.classes to the classes of the masks"
        )


@cache
def class_names(kind: str) -> tuple[str, ...]:
    """The K names of ``voc`` (20), ``coco`` (80), ``context`` (59) or ``coco_stuff`` (171)."""
    text = resources.files("oversmoothing.lab.data").joinpath("classes.yaml").read_text("utf-8")
    parts = yaml.safe_load(text)[kind]  # names, or lists of them
    names = [[part] if isinstance(part, str) else part for part in parts]
    return tuple(name for part in names for name in part)


def checked_names(classes: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of a known list, or the given names.

    Raises:
        InputError: too many names, or a duplicate.
    """
    names = class_names(classes) if isinstance(classes, str) else tuple(classes)
    if not 1 <= len(names) < IGNORE or len(set(names)) < len(names):
        raise InputError(
            f"data.classes: expected 1 to {IGNORE - 1} different names, got {len(names)}, "
            f"{len(set(names))} of them different"
        )
    return names


def palette() -> np.ndarray:
    """The colours in which PASCAL VOC stores its masks.

    Bit 3j + c of a label is bit 7 − j of colour channel c (VOC development kit): 0 is black, 1 is
    (128, 0, 0), 255 is (224, 224, 192).

    Shapes: -> uint8 (256, 3).
    """
    labels = np.arange(256)[:, None]
    channel = np.arange(3)
    bits = (((labels >> (3 * j + channel)) & 1) << (7 - j) for j in range(3))
    return sum(bits).astype(np.uint8)


def to_tensor(image: Image.Image) -> Tensor:
    """Converts an image to a tensor. Shapes: RGB image -> (3, H, W), uint8."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def to_array(image: Tensor) -> np.ndarray:
    """Converts a tensor to an array. Shapes: (3, H, W) uint8 -> (H, W, 3) uint8."""
    return image.permute(1, 2, 0).contiguous().cpu().numpy()


def to_pil(image: Tensor) -> Image.Image:
    """Converts a tensor to an image. Shapes: (3, H, W) uint8 -> RGB image."""
    return Image.fromarray(to_array(image))


def to_float(image: Tensor) -> Tensor:
    """Divides by 255, on the tensor's device. Shapes: uint8 -> float32 in [0, 1], same shape."""
    return image.float() / 255


def listing(folder: Path, suffix: str) -> dict[str, str]:
    """Lists the files of a folder and of its subfolders by name, one system call per folder.

    A file in a subfolder has two names: ``subfolder/name`` and ``name``.

    Args:
        folder: may be missing; the result is then empty.
        suffix: end of the files' names, with the dot of an extension; removed from the names.
    """
    files = {}
    if not folder.is_dir():
        return files
    for entry in os.scandir(folder):
        if entry.is_dir():
            for inner in os.scandir(entry.path):
                if inner.name.endswith(suffix):
                    stem = inner.name.removesuffix(suffix)
                    files[stem] = files[f"{entry.name}/{stem}"] = inner.path
        elif entry.name.endswith(suffix):
            files[entry.name.removesuffix(suffix)] = entry.path
    return files


@contextlib.contextmanager
def opened(path: Path | str) -> Iterator[Image.Image]:
    """Opens an image; PIL may decode it within the block.

    Raises:
        InputError: the file is missing, truncated or not an image.
    """
    try:
        with Image.open(path) as image:
            yield image
    except InputError:
        raise
    except Exception as error:  # PIL may raise any error for a damaged file
        raise InputError(
            f"{path}: cannot be read as an image ({reason_of(error)}); expected a whole JPEG or "
            "PNG, fetch it again"
        ) from error


def read_pil(path: Path | str) -> Image.Image:
    """Decodes an image as RGB.

    Raises:
        InputError: see ``opened``; or the image has more than 8 bits per channel.
    """
    with opened(path) as image:
        if image.mode[0] in "IF":
            raise InputError(
                f"{path}: expected 8 bits per channel, got mode {image.mode}; convert the image"
            )
        return image.convert("RGB")


def read_mask(path: Path | str) -> Tensor:
    """Reads the indices of a palette image or the values of a grey one. Shapes: -> (H, W), uint8.

    Raises:
        InputError: see ``opened``; or the image has colours instead of label values.
    """
    with opened(path) as image:
        require_values(image, path)
        return torch.from_numpy(np.array(image))


def require_values(image: Image.Image, path: Path | str) -> None:
    """Raises InputError unless an image has 8-bit values that can be labels."""
    if image.mode not in ("P", "L"):
        raise InputError(
            f"{path}: expected a palette or grey image of label values, got mode "
            f"{image.mode}; convert its colours to label values"
        )


def read_size(path: Path | str) -> tuple[int, int]:
    """Reads height and width from the header; the pixels are not decoded."""
    with opened(path) as image:
        return image.height, image.width


def write_mask(path: Path, mask: np.ndarray) -> None:
    """Writes label values as a PNG with VOC's palette. Shapes: mask (H, W), uint8."""
    image = Image.fromarray(mask)
    image.putpalette(palette().tobytes())
    image.save(path)


def short_hash(content: object) -> str:
    """Hashes content that JSON can hold to twelve hex digits."""
    return short_sha256(json.dumps(content).encode())


def checksum(*parts: object) -> str:
    """Hashes lists and plain values to twelve hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        for line in part if isinstance(part, (list, tuple)) else [part]:
            digest.update(json.dumps(line).encode() + b"\n")
        digest.update(b"\n")
    return digest.hexdigest()[:12]
