"""Image sets in the folder layout of PASCAL VOC."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig

from oversmoothing.checks import require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.batches import evenly_spaced
from oversmoothing.lab.data.images import voc_labels, voc_lists
from oversmoothing.lab.data.images.classes import checked_names
from oversmoothing.lab.data.images.files import listing
from oversmoothing.lab.data.images.image_set import ImageSet, OnError, short_hash
from oversmoothing.lab.data.images.voc_labels import Labels
from oversmoothing.lab.data.images.voc_lists import find_base, list_path, read_list, require_files

VOCS_OWN = "SegmentationClass"  # masks of the lists train and val of VOC itself


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
            ``voc_labels.from_file``. null: no labels; every training image must have a mask.
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
    voc_lists.warn_of_shared(train_ids, val_ids)
    if labels not in ("masks", None):
        lists = {list_path(base, val): val_ids}  # training images need no mask
    found = require_files(lists, base / masks, ".png", VOCS_OWN) if masks else {}
    mask_files = {id: found[id] for id in ids if id in found}
    present = _labels(base, labels, ids, mask_files, names, Path(cache))
    if labels is not None:
        voc_lists.require_labels(list_path(base, train), train_ids, present)
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
        return voc_labels.cached(voc_labels.from_masks, masks, classes, cache)
    if labels == "xml":
        found = listing(base / "Annotations", ".xml")
        files = {id: found[id] for id in ids if id in found}
        return voc_labels.cached(voc_labels.from_xml, files, classes, cache)
    listed = voc_labels.from_file(base / labels, classes)
    return {id: listed[id] for id in ids if id in listed}


def unlabelled(node: DictConfig) -> ImageSet:
    """Opens VOC's test images as ``val``, without masks or labels.

    Args:
        node: config of ``load``.

    Raises:
        InputError: data in another layout, no such list, or missing images.
    """
    if not node._target_.endswith("voc.load"):
        raise InputError(f"data {node.name}: has no test images; expected data in VOC's layout")
    base = find_base(Path(node.root), node.folder)
    ids = read_list(base, "test")
    files = require_files({list_path(base, "test"): ids}, base / "JPEGImages", ".jpg")
    return ImageSet(
        name=node.name,
        classes=checked_names(node.classes),
        train=(),
        val=ids,
        image_files={id: files[id] for id in ids},
        mask_files={},
        present={},
        checksum="",
    )
