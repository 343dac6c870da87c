"""Write predictions in the format of the PASCAL VOC evaluation server."""

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from oversmoothing.data.images.files import with_palette
from oversmoothing.errors import InputError
from oversmoothing.store.files import write_atomically, writing

COMPETITION = "comp6"  # allows any training data (ImageNet weights); comp5 only VOC's
NUM_LABELS = 21
EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal predictions give equal files


def write_submission(
    folder: Path,
    items: Iterable[tuple[str, np.ndarray]],
    sizes: Mapping[str, tuple[int, int]],
    split: Literal["test", "val"] = "test",
) -> Path:
    """Writes ``comp6_<split>.zip``, after every item has been checked.

    It holds ``results/VOC2012/Segmentation/comp6_<split>_cls/<ID>.png``, PNGs with VOC's palette.

    Args:
        folder: made when missing.
        items: id and labels, uint8 (H, W) in 0…20, in any order.
        sizes: height and width of every image of the split.
        split: of the predictions.

    Returns:
        The path of the zip.

    Raises:
        InputError: labels of another type or size; an image that is predicted twice, unknown or
            missing; or a full disk.
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
    """Checks one item."""
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
