"""Images in folders: one folder per class, as ImageNet, or masks beside images with any names.

The second is the layout of PASCAL Context, COCO-Stuff and other data sets.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import (
    ImageSet,
    LabelledImages,
    Zero,
    checked_names,
    checksum,
    listing,
    read_pil,
    short_hash,
)
from oversmoothing.lab.data.voc import (
    find_base,
    list_path,
    read_list,
    require_files,
    warn_of_shared,
)

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")  # upper or lower case
PARTS = ("train", "val")
LOOKED_AT = 8  # masks that are checked when the set is opened, to find wrong class names early


def load_classes(
    root: str = "data",
    folder: str = "ImageNet",
    name: str = "imagenet",
    classes: str | None = None,
) -> LabelledImages:
    """Opens a data set with one folder per class; lists the images without reading them.

    Classes are sorted by the names of their folders, as ImageNet's are. Ids are paths relative to
    ``root/folder``.

    Args:
        root: folder with the data; nothing is written to it.
        folder: subfolder that holds ``train`` and ``val``.
        name: of the data set.
        classes: file in ``root/folder`` that selects classes (ImageNet-100); each line begins with
            the name of a class folder. null: all folders of ``train``.

    Raises:
        InputError: a folder or the list does not exist, a class has no images, or a class of
            ``val`` or of the list is not in ``train``.
    """
    base = Path(root) / folder
    found = {part: _folders(base / part) for part in PARTS}
    chosen = _listed(base / classes, base, found["train"]) if classes else _every(base, **found)
    ids = {part: _images(base, part, chosen) for part in PARTS}
    files = _Files(base, chosen)
    return LabelledImages(
        name=name,
        classes=chosen,
        train=ids["train"],
        val=ids["val"],
        pil_image=files.pil_image,
        target=files.target,
        checksum=checksum(chosen, ids["train"], ids["val"]),
    )


def _every(base: Path, train: set[str], val: set[str]) -> tuple[str, ...]:
    """All classes of ``train``, sorted; raises InputError if ``val`` has others."""
    if unknown := sorted(val - train):
        raise InputError(
            f"{base / 'val'}: {len(unknown)} classes are missing in train (first {unknown[0]}); "
            "remove these folders, or list the classes to use in a file, data.classes"
        )
    return tuple(sorted(train))


class _Files:
    """Reads an id's file, and its class from the folder in the id."""

    def __init__(self, base: Path, classes: Sequence[str]) -> None:
        self.base = str(base)
        self.numbers = {name: k for k, name in enumerate(classes)}

    def pil_image(self, id: str) -> Image.Image:
        return read_pil(f"{self.base}/{id}")

    def target(self, id: str) -> int:
        return self.numbers[id.split("/")[1]]


def _folders(part: Path) -> set[str]:
    layout = f"expected {part.name}/<class>/*.JPEG"
    try:
        found = {entry.name for entry in os.scandir(part) if entry.is_dir() and _shown(entry.name)}
    except OSError as error:
        raise InputError(
            f"{part}: cannot be listed ({error.strerror}); {layout}: set paths.data or DATA_ROOT "
            f"to the folder that holds {part.parent.name}, or data.folder"
        ) from error
    if not found:
        raise InputError(
            f"{part}: holds no class folders; {layout}: ImageNet's validation images come "
            "unsorted, move each into the folder of its class"
        )
    return found


def _listed(path: Path, base: Path, known: set[str]) -> tuple[str, ...]:
    """Reads the classes of a list; sorts them."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"data.classes: {path} cannot be read ({getattr(error, 'strerror', 'no text')}); "
            "expected lines that begin with the name of a class folder"
        ) from error
    names = [line.split()[0] for line in lines if line.strip()]
    if not names or len(set(names)) < len(names):
        double = next((name for name in names if names.count(name) > 1), None)
        what = f"names {double} twice" if double else "names no class"
        raise InputError(f"{path}: {what}; expected a different class folder in each line")
    if unknown := [name for name in names if name not in known]:
        raise InputError(
            f"{path}: {len(unknown)} of {len(names)} classes have no folder in {base / 'train'} "
            f"(first {unknown[0]}); correct the list, or fetch these classes"
        )
    return tuple(sorted(names))


def _images(base: Path, part: str, classes: Sequence[str]) -> tuple[str, ...]:
    """Lists the ids of a part, sorted; other files and subfolders are left out."""
    ids: list[str] = []
    for name in classes:
        place = base / part / name
        names = [*filter(_shown, os.listdir(place))] if place.is_dir() else []
        files = sorted(file for file in names if file.lower().endswith(SUFFIXES))
        if not files:
            raise InputError(
                f"{base / part}: class {name} has no image in {place}; fetch its images, or list "
                "the other classes in a file, data.classes"
            )
        ids += [f"{part}/{name}/{file}" for file in files]
    return tuple(ids)


def _shown(name: str) -> bool:
    """Whether a file or folder is not hidden, as ``.ipynb_checkpoints`` and macOS's ``._a.jpg``."""
    return not name.startswith(".")


def load_masks(
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
        zero: meaning of value 0, see ``ImageSet``. The first of ``classes`` has value 1.

    Raises:
        InputError: a folder, list, image or mask is missing, or one of the first masks of ``val``
            is damaged or holds values beyond the classes.
    """
    names = checked_names(classes)
    base = find_base(Path(root), folder, "name another folder with data.folder=…")
    ids = {part: _ids_of(base, part, lists, images, image_suffix) for part in (train, val)}
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
        zero=zero,
    )
    for id in data.val[:LOOKED_AT]:
        data.mask(id)
    return data


def _origin(base: Path, part: str, lists: str | None, images: str) -> Path:
    return base / images / part if lists is None else list_path(base, part, lists)


def _ids_of(base: Path, part: str, lists: str | None, images: str, suffix: str) -> tuple[str, ...]:
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
