"""Images with masks and image-level labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oversmoothing.data.images.images import read_image, read_mask, read_size
from oversmoothing.data.images.voc_labels import IGNORE, Labels, check_values
from oversmoothing.errors import InputError

OnError = Literal["stop", "skip"]
Zero = Literal["background", "ignored", "class"]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Ids of two parts, and what belongs to an id; files are read when they are asked for.

    Args:
        name: of the data set.
        classes: the K names; label value k is ``classes[k - 1]`` unless ``zero`` is ``class``.
        train: ids, each with at least one class.
        val: ids.
        image_files: id -> JPEG.
        mask_files: id -> palette PNG; may lack ids.
        present: id -> label values of the classes in the image; may lack ids of ``val``.
        checksum: short hash of names, lists and labels, not of pixels.
        on_error: of training images that cannot be read: ``skip`` takes another one in its place.
        zero: what value 0 of a mask's file is: ``background``, a label of its own before the
            classes; ``ignored``; or the first ``class``, so that value k is ``classes[k]``. 255 is
            always ignored. Without background, :meth:`mask` counts the classes from 0.
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
        """Whether label 0 is background, of which ``classes`` says nothing."""
        return self.zero == "background"

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the values 0, 1, … of :meth:`mask`: what a network tells apart."""
        return ("background", *self.classes) if self.background else self.classes

    def image(self, id: str) -> Tensor:
        """Shapes: -> (3, H, W), uint8, RGB. InputError: the file is missing or damaged."""
        return read_image(self.image_files[id])

    def mask(self, id: str) -> Tensor:
        """Label values, 0 for the first of ``label_names``, and 255. Shapes: -> (H, W), uint8.

        Raises:
            InputError: no mask, a damaged one, another size than the image, or other values.
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

    def require_masks(self, *parts: Literal["train", "val"]) -> None:
        """InputError unless every image of these parts has a mask; files are not opened."""
        for part in parts:
            ids = getattr(self, part)
            if missing := [id for id in ids if id not in self.mask_files]:
                raise InputError(
                    f"data {self.name}: {len(missing)} of {len(ids)} {part} images have no mask "
                    f"(first {missing[0]}); check data.masks and data.{part}"
                )

    def require_sizes(self, ids: Iterable[str]) -> None:
        """InputError unless masks, of those that have one, are as large as their images.

        Headers are read, a millisecond an image: sooner than after a training.
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

    def label(self, id: str) -> Tensor:
        """1 for each class in the image. Shapes: -> (K,), float32. InputError: it has no label."""
        if id not in self.present:
            raise InputError(f"data {self.name}: {id} has no image-level label; check data.labels")
        label = torch.zeros(len(self.classes))
        label[[k - 1 for k in self.present[id]]] = 1
        return label
