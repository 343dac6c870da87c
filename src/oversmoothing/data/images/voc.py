"""Image sets in the folders of PASCAL VOC."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from oversmoothing.data.images import voc_labels
from oversmoothing.data.images.classes import class_names
from oversmoothing.data.images.image_set import ImageSet, OnError
from oversmoothing.data.images.images import listing
from oversmoothing.data.images.voc_labels import Labels
from oversmoothing.data.images.voc_lists import find_base, read_list, require, require_labels
from oversmoothing.errors import InputError


def load(
    root: str = "data",
    folder: str = "VOC2012",
    name: str = "voc",
    train: str = "train_aug",
    val: str = "val",
    masks: str | None = "SegmentationClassAug",
    labels: str | None = "masks",
    classes: Literal["voc", "coco"] = "voc",
    on_error: OnError = "stop",
    cache: str = "outputs/cache",
) -> ImageSet:
    """Opens a data set in VOC's layout; masks or boxes are read once, for their labels.

    Args:
        root: folder with the data, only read; holds ``folder`` or ``VOCdevkit/folder``.
        folder: holds JPEGImages, ImageSets/Segmentation and what ``masks`` and ``labels`` need;
            images and masks may lie in subfolders (train2014/…).
        name: of the data set.
        train: list of training images, ImageSets/Segmentation/<train>.txt.
        val: list of images to evaluate on.
        masks: folder of the masks; null: there are none (VOC's test images), only to predict.
        labels: image-level labels: ``masks``: classes with a pixel; ``xml``: classes with a box in
            Annotations, difficult ones included; else a JSON file, see ``voc_labels.from_file``.
            null: none, to learn from masks, all of which must be there; none is read beforehand.
        classes: names of label values 1, 2, …
        on_error: at a damaged training image: stop, or skip it with a warning.
        cache: folder for labels that were read from masks or boxes.

    Raises:
        InputError: a folder, list, image, mask of ``val`` or label of ``train`` is missing; or,
            without labels, a mask of ``train``.
    """
    base = find_base(Path(root), folder)
    names = class_names(classes)
    return open_set(base, name, train, val, masks, labels, names, on_error, Path(cache))


def open_set(
    base: Path,
    name: str,
    train: str,
    val: str,
    masks: str | None,
    labels: str | None,
    classes: tuple[str, ...],
    on_error: OnError,
    cache: Path,
) -> ImageSet:
    """As ``load``, from the folder and the class names themselves."""
    if labels == "masks" and masks is None:
        raise InputError("data.labels: masks need data.masks; set data.labels to xml or a file")
    if labels is None and masks is None:
        raise InputError("data.labels: null leaves only data.masks to learn from; set either")
    parts = {part: read_list(base, part) for part in (train, val)}
    ids = tuple(dict.fromkeys(id for part in parts.values() for id in part))
    images = require(base, parts, "JPEGImages", ".jpg")
    with_masks = [part for part in parts if part == val or labels in ("masks", None)]
    found = require(base, {part: parts[part] for part in with_masks}, masks, ".png")
    mask_files = {id: found[id] for id in ids if id in found}
    present = _labels(base, labels, ids, mask_files, classes, cache)
    if labels is not None:
        require_labels(base, train, parts[train], present)
    content = json.dumps([classes, parts[train], parts[val], sorted(present.items())])
    return ImageSet(
        name=name,
        classes=classes,
        train=parts[train],
        val=parts[val],
        image_files={id: images[id] for id in ids},
        mask_files=mask_files,
        present=present,
        checksum=hashlib.sha256(content.encode()).hexdigest()[:12],
        on_error=on_error,
    )


def _labels(
    base: Path,
    labels: str | None,
    ids: Sequence[str],
    masks: Mapping[str, str],
    classes: Sequence[str],
    cache: Path,
) -> Labels:
    """Labels of those ids that have any."""
    if labels is None:
        return {}
    if labels == "masks":
        return voc_labels.cached(voc_labels.from_masks, masks, classes, cache)
    if labels == "xml":
        found = listing(base / "Annotations", ".xml")
        files = {id: found[id] for id in ids if id in found}
        return voc_labels.cached(voc_labels.from_xml, files, classes, cache)
    listed = voc_labels.from_file(base / labels, classes)
    return {id: listed[id] for id in ids if id in listed}
