"""PASCAL VOC 2012, and data sets in its layout: image lists, image-level labels, masks."""

import hashlib
import json
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from oversmoothing.checks import require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import (
    IGNORE,
    ImageSet,
    Labels,
    check_values,
    checked_names,
    listing,
    opened,
    require_values,
    short_hash,
)
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.store.files import write_text

LISTS = "ImageSets/Segmentation"
FETCH = "get VOC 2012 with oversmoothing data voc"
VERSION = 1  # increase it when the code reads other labels from the same files


def load(
    root: str = "data",
    folder: str = "VOC2012",
    name: str = "voc",
    train: str = "train_aug",
    val: str = "val",
    num_train: int | None = None,
    masks: str | None = "SegmentationClassAug",
    labels: str | None = "masks",
    classes: Literal["voc", "coco"] | list[str] = "voc",
    cache: str = "outputs/cache",
) -> ImageSet:
    """Opens a data set in VOC's layout.

    Image-level labels that come from masks are read once and cached.

    Args:
        root: folder with the data; nothing is written to it. Holds ``folder`` or
            ``VOCdevkit/folder``.
        folder: holds JPEGImages, ImageSets/Segmentation and the files that ``masks`` and
            ``labels`` need. Images and masks may be in subfolders (train2014/…).
        name: of the data set.
        train: list of training images, ImageSets/Segmentation/<train>.txt.
        val: list of validation images.
        num_train: number of training images to use, evenly spaced in their list; null: all.
        masks: folder of the masks; null: there are no masks, so mIoU cannot be measured.
        labels: source of the image-level labels. ``masks``: classes with a pixel. Else the name of
            a JSON file, see ``from_file``. null: none; every training image must have a mask.
        classes: names of label values 1, 2, …, or the name of a known list.
        cache: folder for labels that were read from masks.

    Raises:
        InputError: a folder, list, image, mask of ``val`` or label of ``train`` is missing; without
            labels, a mask of ``train``; or ``num_train`` is not between 1 and their number.
    """
    base, names = find_base(Path(root), folder), checked_names(classes)
    if masks is None:
        _require_without_masks(labels)
    train_ids, val_ids = _chosen(read_list(base, train), num_train), read_list(base, val)
    ids = tuple(dict.fromkeys((*train_ids, *val_ids)))
    lists = {list_path(base, train): train_ids, list_path(base, val): val_ids}
    images = require_files(lists, base / "JPEGImages", ".jpg")
    warn_of_shared(train_ids, val_ids)
    if labels not in ("masks", None):
        lists = {list_path(base, val): val_ids}  # training images need no mask
    found = require_files(lists, base / masks, ".png") if masks else {}
    mask_files = {id: found[id] for id in ids if id in found}
    present = _labels(base, labels, ids, mask_files, names, Path(cache))
    if labels is not None:
        require_labels(list_path(base, train), train_ids, present)
    return ImageSet(
        name=name,
        classes=names,
        train=train_ids,
        val=val_ids,
        image_files={id: images[id] for id in ids},
        mask_files=mask_files,
        present=present,
        checksum=short_hash([names, train_ids, val_ids, sorted(present.items())]),
    )


def _chosen(ids: tuple[str, ...], number: int | None) -> tuple[str, ...]:
    """Chooses ``number`` of the ids, evenly spaced; None: all."""
    if number is None:
        return ids
    known = f"1 to {len(ids)}, the images of data.train, or null for all"
    require("data", num_train=(number, 1 <= number <= len(ids), known))
    return tuple(evenly_spaced(ids, number))


def _require_without_masks(labels: str | None) -> None:
    """Raises InputError if the image-level labels need masks."""
    if labels == "masks":
        raise InputError("data.labels: masks need data.masks; set data.labels to a file")
    if labels is None:
        raise InputError("data.labels: null needs data.masks; set one of the two")


def _labels(
    base: Path,
    labels: str | None,
    ids: Sequence[str],
    masks: Mapping[str, str],
    classes: Sequence[str],
    cache: Path,
) -> Labels:
    """Reads the labels of the ids that have any."""
    if labels is None:
        return {}
    if labels == "masks":
        return cached(masks, classes, cache)
    listed = from_file(base / labels, classes)
    return {id: listed[id] for id in ids if id in listed}


def find_base(root: Path, folder: str, way_out: str = FETCH) -> Path:
    """Finds ``root/folder``, or ``VOCdevkit/folder``, as in VOC's archive, in ``root`` or there.

    Args:
        way_out: the alternative to setting ``paths.data``, for the error message.

    Raises:
        InputError: neither folder exists.
    """
    for base in bases(root, folder):
        if base.is_dir():
            return base
    raise InputError(
        f"{root}: expected {folder} or VOCdevkit/{folder} in it; set paths.data=… or "
        f"DATA_ROOT, or {way_out}"
    )


def bases(root: Path, folder: str) -> tuple[Path, Path, Path]:
    """Returns the places where ``find_base`` looks for the data, in this order."""
    inner = Path("VOCdevkit", folder)  # the archive may have been unpacked in its own folder
    return root / folder / inner, root / folder, root / inner


def list_path(base: Path, part: str, lists: str = LISTS) -> Path:
    """Path of a list."""
    return base / lists / f"{part}.txt"


def read_list(base: Path, part: str, lists: str = LISTS) -> tuple[str, ...]:
    """Reads the ids in ``base/lists/part.txt``, one per line.

    Raises:
        InputError: the list is missing or empty.
    """
    path = list_path(base, part, lists)
    try:
        lines = path.read_text("utf-8-sig").splitlines()
        ids = tuple(line.strip() for line in lines if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(listing(path.parent, ".txt"))) or "none"
        raise InputError(
            f"{path}: the list cannot be read ({getattr(error, 'strerror', error)}); lists there "
            f"are: {known}"
        ) from error
    if not ids:
        raise InputError(f"{path}: the list is empty; expected one image id per line")
    return ids


def require_files(lists: Mapping[Path, Sequence[str]], folder: Path, suffix: str) -> dict[str, str]:
    """Finds the files of a folder by id.

    Args:
        lists: path of a list -> its ids; each must have a file.
        folder: of the files.
        suffix: of the files.

    Raises:
        InputError: an id without a file.
    """
    files = listing(folder, suffix)
    for path, ids in lists.items():
        if missing := [id for id in ids if id not in files]:
            raise InputError(
                f"{path}: {_some(missing, ids)} are not in {folder} as *{suffix}; put them there, "
                "or choose another folder with data.masks or lists with data.train and data.val; a "
                "line holds one id, without folder and ending"
            )
    return files


def warn_of_shared(train: Sequence[str], val: Sequence[str]) -> None:
    """Warns if some validation images, but not all, are training images."""
    if 0 < (shared := len({*train} & {*val})) < len({*val}):
        warnings.warn(
            f"data.val: {shared} of {len(val)} images are in the list of data.train as well, so "
            "they are not new to the network; remove them from one of the lists",
            stacklevel=3,
        )


def require_labels(path: Path, ids: Sequence[str], present: Mapping[str, Collection[int]]) -> None:
    """Raises InputError if an image of a list has no class, since classifiers need at least one."""
    if bare := [id for id in ids if not present.get(id)]:
        raise InputError(
            f"{path}: {_some(bare, ids)} have no image-level label; remove them from the list or "
            "check data.labels"
        )


def _some(wrong: Sequence[str], ids: Sequence[str]) -> str:
    dots = ", …" if len(wrong) > 3 else ""
    return f"{len(wrong)} of {len(ids)} images ({', '.join(wrong[:3])}{dots})"


def from_masks(files: Mapping[str, str], classes: Sequence[str]) -> Labels:
    """Reads the classes with at least one pixel.

    Args:
        files: id -> palette PNG.
        classes: the K names.

    Raises:
        InputError: a mask cannot be read or holds a value that is neither 0 … K nor 255.
    """
    labels = {}
    for name, path in files.items():
        with opened(path) as image:
            require_values(image, path)
            counts = image.histogram()  # of the indices; needs no array of the pixels
        values = [value for value, count in enumerate(counts) if count]
        check_values(values, len(classes), path)
        labels[name] = tuple(value for value in values if 0 < value < IGNORE)
    return labels


def from_file(path: Path, classes: Sequence[str]) -> Labels:
    """Reads a JSON object: id -> class names, or label values 1 … K.

    Raises:
        InputError: the file is missing, is not JSON of this form, or names an unknown class.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as JSON ({error}); data.labels: expected masks, or a JSON "
            "file of image id -> list of class names"
        ) from error
    number = {name: k for k, name in enumerate(classes, 1)}
    number |= {k: k for k in number.values()}
    try:
        return {name: tuple(sorted({number[c] for c in found})) for name, found in content.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: expected image id -> list of class names or of values 1 to {len(classes)}, "
            f"got {error}; check data.classes"
        ) from error


def cached(files: Mapping[str, str], classes: Sequence[str], cache: Path) -> Labels:
    """Returns ``from_masks(files, classes)`` and caches it as JSON.

    The cached result is used as long as the files have the same sizes and modification times.
    """
    stats = {os.path.realpath(path): os.stat(path) for path in files.values()}
    changed = {path: (found.st_size, found.st_mtime_ns) for path, found in stats.items()}
    key = [VERSION, from_masks.__name__, changed, list(files), list(classes)]
    path = cache / "labels" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
    try:
        kept = json.loads(path.read_text("utf-8"))
        return {name: tuple(kept[name]) for name in files}
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged
        pass
    labels = from_masks(files, classes)
    write_text(path, json.dumps(labels), "paths.cache")
    return labels
