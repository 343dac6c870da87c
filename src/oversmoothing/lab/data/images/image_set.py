"""Data sets of images with masks and image-level labels, for segmentation."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.data.checksum import short_sha256
from oversmoothing.lab.data.images.convert import to_tensor
from oversmoothing.lab.data.images.files import read_mask, read_pil, read_size
from oversmoothing.lab.data.images.voc_labels import Labels, check_values
from oversmoothing.metrics.segmentation import IGNORE

OnError = Literal["stop", "skip"]
Zero = Literal["background", "ignored", "class"]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Ids of training and validation images, and the files of each id.

    Files are read on request.

    Args:
        name: of the data set.
        classes: the K names; label value k is ``classes[k - 1]`` unless ``zero`` is ``class``.
        train: ids, each with at least one class.
        val: ids.
        image_files: id -> JPEG.
        mask_files: id -> palette PNG; ids may be missing.
        present: id -> label values of the classes in the image; ids of ``val`` may be missing.
        checksum: short hash of names, lists and labels; pixels are not hashed.
        on_error: what to do at a damaged training image: ``stop``, or ``skip`` it and use another.
        zero: meaning of value 0 in a mask file: ``background``, a label before the classes;
            ``ignored``; or the first ``class``, so that value k is ``classes[k]``. 255 is always
            ignored. Without background, :meth:`mask` counts the classes from 0.
    """

    name: str
    classes: tuple[str, ...]
    train: tuple[str, ...]
    val: tuple[str, ...]
    image_files: Mapping[str, str]
    mask_files: Mapping[str, str]
    present: Labels
    checksum: str
    on_error: OnError = "stop"
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
        highest = len(self.classes) - (self.zero == "class")
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


def short_hash(content: object) -> str:
    """Hashes content that JSON can hold to twelve hex digits."""
    return short_sha256(json.dumps(content).encode())
