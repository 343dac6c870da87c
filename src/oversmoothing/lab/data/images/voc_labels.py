"""Image-level labels: the classes in an image, from its mask, its bounding boxes, or a list."""

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from oversmoothing.errors import InputError
from oversmoothing.lab.data.images.classes import class_names
from oversmoothing.lab.data.images.files import opened, require_values
from oversmoothing.lab.data.unpickle import load
from oversmoothing.lab.store.files import write_text, writing
from oversmoothing.metrics.segmentation import IGNORE

Labels = dict[str, tuple[int, ...]]  # id -> label values 1 … K in ascending order
VERSION = 1  # increase it when the code reads other labels from the same files


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


def check_values(values: Sequence[int], num_classes: int, path: str) -> None:
    """Raises InputError unless all values are 0 … K or 255."""
    if wrong := [value for value in values if num_classes < value != IGNORE]:
        raise InputError(
            f"{path}: label values {wrong[:5]}, expected 0 to {num_classes} or {IGNORE}; "
            "set data.classes to the classes of the masks"
        )


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

    ``scripts/convert_labels.py`` makes one from the pickled ``cls_labels_onehot.npy``.

    Raises:
        InputError: the file is missing, is not JSON of this form, or names an unknown class.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as JSON ({error}); data.labels: expected masks, xml or a "
            "file made by scripts/convert_labels.py"
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
            content = load(file).item()
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
    with writing(path, "paths.cache"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(labels))
    return labels
