"""Images and masks in folders with any names: PASCAL Context, COCO-Stuff, your own."""

from pathlib import Path
from typing import Literal

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import (
    ImageSet,
    OnError,
    Zero,
    checked_names,
    listing,
    short_hash,
)
from oversmoothing.lab.data.voc import (
    find_base,
    list_path,
    read_list,
    require_files,
    warn_of_shared,
)

LOOKED_AT = 8  # masks that are checked when the set is opened, to find wrong class names early


def load(
    root: str = "data",
    folder: str = "VOC2010",
    name: str = "context",
    images: str = "JPEGImages",
    image_suffix: str = ".jpg",
    masks: str = "SegmentationClassContext",
    mask_suffix: str = ".png",
    lists: str | None = "ImageSets/SegmentationContext",
    train: str = "train",
    val: str = "val",
    classes: Literal["voc", "coco", "context", "coco_stuff"] | list[str] = "context",
    zero: Zero = "background",
    on_error: OnError = "stop",
) -> ImageSet:
    """Opens a data set with masks and without image-level labels.

    Args:
        root: folder with the data; nothing is written to it. Holds ``folder`` or
            ``VOCdevkit/folder``.
        folder: holds ``images``, ``masks`` and ``lists``.
        name: of the data set.
        images: folder of the images; they may be in subfolders.
        image_suffix: end of an image's name, after the id.
        masks: folder of the masks, palette or grey; same subfolders as the images.
        mask_suffix: end of a mask's name, after the id.
        lists: folder of the lists; null: ``train`` and ``val`` are subfolders of ``images``.
        train: training images: ``lists/<train>.txt``, or the subfolder.
        val: validation images, given in the same way.
        classes: names in the order of the label values, or the name of a known list.
        zero: meaning of value 0, see ``ImageSet``. The first of ``classes`` has value 1, or value 0
            with ``zero="class"``.
        on_error: at a damaged training image: stop, or skip it with a warning.

    Raises:
        InputError: a folder, list, image or mask is missing, or one of the first masks of ``val``
            is damaged or holds values beyond the classes.
    """
    names = checked_names(classes)
    base = find_base(Path(root), folder, "name another folder with data.folder=…")
    ids = {part: _ids(base, part, lists, images, image_suffix) for part in (train, val)}
    origins = {_origin(base, part, lists, images): ids[part] for part in ids}
    image_files = require_files(origins, base / images, image_suffix)
    mask_files = require_files(origins, base / masks, mask_suffix)
    warn_of_shared(ids[train], ids[val])
    every = dict.fromkeys(id for part in ids.values() for id in part)

    data = ImageSet(
        name=name,
        classes=names,
        train=ids[train],
        val=ids[val],
        image_files={id: image_files[id] for id in every},
        mask_files={id: mask_files[id] for id in every},
        present={},
        checksum=short_hash([names, ids[train], ids[val], zero]),
        on_error=on_error,
        zero=zero,
    )
    for id in data.val[:LOOKED_AT]:
        data.mask(id)
    return data


def _origin(base: Path, part: str, lists: str | None, images: str) -> Path:
    return base / images / part if lists is None else list_path(base, part, lists)


def _ids(base: Path, part: str, lists: str | None, images: str, suffix: str) -> tuple[str, ...]:
    """Reads the ids of a list, or lists a subfolder: ``part/name``."""
    if lists is not None:
        return read_list(base, part, lists)
    found = tuple(f"{part}/{stem}" for stem in sorted(listing(base / images / part, suffix)))
    if not found:
        raise InputError(
            f"{base / images / part}: holds no *{suffix}; set data.train and data.val to "
            f"subfolders of {images}, or data.lists to the folder of lists"
        )
    return found
