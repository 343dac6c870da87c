"""Writes the segmentation of a whole split in the format of VOC's evaluation server."""

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm import tqdm

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import ImageSet, class_names, read_size, with_palette
from oversmoothing.lab.data.loading import evaluation_items
from oversmoothing.lab.store.files import write_atomically, writing
from oversmoothing.lab.tasks.wsss.crf import dense_crf
from oversmoothing.lab.tasks.wsss.network import Network, segmented
from oversmoothing.lab.tasks.wsss.settings import Evaluation
from oversmoothing.metrics.segmentation import Confusion

COMPETITION = "comp6"  # allows any training data, such as ImageNet; comp5 allows only VOC
NUM_LABELS = 21
EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal predictions give equal files


def export(
    network: Network,
    data: ImageSet,
    evaluation: Evaluation,
    folder: Path,
    split: Literal["test", "val"] = "test",
) -> tuple[Path, float | None]:
    """Writes the submission of all images of ``data.val``; limits of the evaluation are ignored.

    Args:
        network: in evaluation mode, with a trained decoder.
        data: VOC; the mIoU is measured only if every image has a mask.
        evaluation: scales, fusion and CRF.
        folder: for the zip; made when missing.
        split: name of the split for the server.

    Returns:
        Path of the zip, and its mIoU in percent; None unless every image has a mask.

    Raises:
        InputError: classes are not VOC's, an image is damaged, or the disk is full.
    """
    if data.classes != class_names("voc"):
        raise InputError(
            f"data {data.name}: VOC's server takes only VOC's 20 classes; choose a run on VOC"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    count = Confusion(1 + len(data.classes)) if set(data.val) <= set(data.mask_files) else None

    def items() -> Iterator[tuple[str, np.ndarray]]:
        for name, labels in segmentations(network, data, evaluation):
            if count:
                count.update(labels, data.mask(name), name)
            yield name, labels

    sizes = {id: read_size(data.image_files[id]) for id in data.val}
    path = write_submission(folder, items(), sizes, split)
    return path, count.miou() if count else None


def segmentations(
    network: Network, data: ImageSet, evaluation: Evaluation
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields ids and labels of ``data.val``, uint8 (H, W), after the CRF if there is one."""
    items = evaluation_items(data, data.val, evaluation.workers, masks=False)
    bar = {"leave": False, "disable": None, "dynamic_ncols": True}  # None: only on a terminal
    items = tqdm(items, "multi-scale", len(data.val), **bar)
    for item in items:
        found = segmented(network, item["image"], evaluation)
        if evaluation.crf:
            found = dense_crf(item["image"], found, evaluation.crf)
        yield item["name"], found.max(0).indices.byte().cpu().numpy()


def write_submission(
    folder: Path,
    items: Iterable[tuple[str, np.ndarray]],
    sizes: Mapping[str, tuple[int, int]],
    split: Literal["test", "val"] = "test",
) -> Path:
    """Writes ``comp6_<split>.zip`` after every item has been checked, and returns its path.

    It holds ``results/VOC2012/Segmentation/comp6_<split>_cls/<ID>.png``, PNGs with VOC's palette.

    Args:
        folder: made when missing.
        items: id and labels, uint8 (H, W) in 0…20, in any order.
        sizes: height and width of every image of the split.
        split: of the predictions.

    Raises:
        InputError: labels have a wrong type or size; an image is predicted twice, unknown or
            missing; or the disk is full.
    """
    inside = f"results/VOC2012/Segmentation/{COMPETITION}_{split}_cls"
    seen: set[str] = set()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, labels in items:
            _check(name, labels, seen, sizes)
            seen.add(name)
            archive.writestr(zipfile.ZipInfo(f"{inside}/{name}.png", EPOCH), png(labels))
    if missing := sorted(sizes.keys() - seen):
        raise InputError(
            f"submission: {len(missing)} of {len(sizes)} images have no prediction, first "
            f"{missing[0]}; predict the whole split"
        )
    path = Path(folder) / f"{COMPETITION}_{split}.zip"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(buffer.getbuffer()))
    return path


def png(labels: np.ndarray) -> bytes:
    """Encodes labels as a PNG with VOC's palette. Shapes: (H, W) uint8 -> bytes."""
    buffer = io.BytesIO()
    with_palette(labels).save(buffer, "PNG")
    return buffer.getvalue()


def _check(
    name: str, labels: np.ndarray, seen: set[str], sizes: Mapping[str, tuple[int, int]]
) -> None:
    if name in seen:
        raise InputError(f"{name}: predicted twice; the server takes one mask per image")
    if labels.dtype != np.uint8 or labels.ndim != 2:
        raise InputError(f"{name}: expected uint8 (H, W), got {labels.dtype} {labels.shape}")
    if labels.size and labels.max() >= NUM_LABELS:
        raise InputError(
            f"{name}: expected labels 0 to {NUM_LABELS - 1}, got {labels.max()}; the server takes "
            "VOC's 20 classes and background, but no unsure pixels"
        )
    if name not in sizes:
        raise InputError(f"{name}: not an image of this split; predict the images of its list")
    if labels.shape != tuple(sizes[name]):
        raise InputError(
            f"{name}: prediction {labels.shape} and image {tuple(sizes[name])} differ in height "
            "and width; resize the logits to the image"
        )
