"""PASCAL VOC 2012, and data sets in its layout: image lists, image-level labels, masks."""

import hashlib
import json
import os
import pickle
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from oversmoothing.checks import require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import (
    IGNORE,
    ImageSet,
    Labels,
    OnError,
    check_values,
    checked_names,
    class_names,
    listing,
    opened,
    require_values,
    short_hash,
)
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.data.unpickle import load as unpickled
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
    on_error: OnError = "stop",
    cache: str = "outputs/cache",
) -> ImageSet:
    """Opens a data set in VOC's layout.

    Image-level labels that come from masks or boxes are read once and cached.

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
        labels: source of the image-level labels. ``masks``: classes with a pixel. ``xml``: classes
            with a box in Annotations, difficult ones included. Else the name of a JSON file, see
            ``from_file``. null: no labels; every training image must have a mask.
        classes: names of label values 1, 2, …, or the name of a known list.
        on_error: at a damaged training image: stop, or skip it with a warning.
        cache: folder for labels that were read from masks or boxes.

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
        on_error=on_error,
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
        raise InputError("data.labels: masks need data.masks; set data.labels to xml or a file")
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
        return cached(from_masks, masks, classes, cache)
    if labels == "xml":
        found = listing(base / "Annotations", ".xml")
        files = {id: found[id] for id in ids if id in found}
        return cached(from_xml, files, classes, cache)
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


def from_xml(files: Mapping[str, str], classes: Sequence[str]) -> Labels:
    """Reads the classes with at least one bounding box in VOC's annotations.

    Objects marked ``difficult`` count too: they are in the image.

    Args:
        files: id -> XML file.
        classes: the K names.

    Raises:
        InputError: a file cannot be read or names an unknown class.
    """
    return {name: _of_boxes(path, classes) for name, path in files.items()}


def _of_boxes(path: str, classes: Sequence[str]) -> tuple[int, ...]:
    try:
        boxes = ElementTree.parse(path).getroot().findall("object")
        found = {(box.findtext("name") or "").strip() for box in boxes}
    except (OSError, ElementTree.ParseError) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch it again") from error
    if unknown := sorted(found - set(classes)):
        raise InputError(f"{path}: unknown class {unknown[0]!r}; expected VOC's names")
    return tuple(sorted(classes.index(name) + 1 for name in found))


def from_file(path: Path, classes: Sequence[str]) -> Labels:
    """Reads a JSON object: id -> class names, or label values 1 … K.

    ``oversmoothing data labels`` makes one from the pickled ``cls_labels_onehot.npy``.

    Raises:
        InputError: the file is missing, is not JSON of this form, or names an unknown class.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as JSON ({error}); data.labels: expected masks, xml or a "
            "file made by oversmoothing data labels"
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


def read_onehot(path: Path) -> dict[str, list[str]]:
    """Reads image id -> class names from cls_labels_onehot.npy, a pickled dict of 0/1 vectors.

    Vectors of 20 entries are VOC's classes, of 80 entries COCO's. The pickle is read by the
    restricted unpickler, which builds nothing but arrays and dicts.

    Raises:
        InputError: the file cannot be read, holds something else, or would run code.
    """
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
            (header or np.lib.format.read_array_header_2_0)(file)
            content = unpickled(file).item()
        return {str(name): _names(np.asarray(vector)) for name, vector in content.items()}
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: more than arrays and dicts ({error}), so it is not read; set data.labels to "
            "masks or xml instead"
        ) from error
    except (Exception, MemoryError) as error:  # numpy may raise any error for a damaged file
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: expected a .npy file with a pickled dict ({why})") from error


def _names(vector: np.ndarray) -> list[str]:
    kinds = {20: "voc", 80: "coco"}
    if vector.size not in kinds:
        raise ValueError(f"a vector of {vector.size}, not of 20 or 80, entries")
    names = class_names(kinds[vector.size])
    return [names[i] for i in vector.ravel().nonzero()[0]]


def cached(
    compute: Callable[[Mapping[str, str], Sequence[str]], Labels],
    files: Mapping[str, str],
    classes: Sequence[str],
    cache: Path,
) -> Labels:
    """Returns ``compute(files, classes)`` and caches it as JSON.

    The cached result is used as long as the files have the same sizes and modification times.
    """
    stats = {os.path.realpath(path): os.stat(path) for path in files.values()}
    changed = {path: (found.st_size, found.st_mtime_ns) for path, found in stats.items()}
    key = [VERSION, compute.__name__, changed, list(files), list(classes)]
    path = cache / "labels" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
    try:
        kept = json.loads(path.read_text("utf-8"))
        return {name: tuple(kept[name]) for name in files}
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged
        pass
    labels = compute(files, classes)
    write_text(path, json.dumps(labels), "paths.cache")
    return labels
