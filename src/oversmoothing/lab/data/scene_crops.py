"""Single shapes cut out of generated scenes, to classify; no download."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import ndimage

from oversmoothing.checks import at_least, require
from oversmoothing.lab.data.image_set import InMemory, LabelledImages, short_hash
from oversmoothing.lab.data.scenes import CLASSES, scene
from oversmoothing.lab.data.scenes import VERSION as OF_SCENES
from oversmoothing.lab.store.files import write_atomically, writing

VERSION = 1  # increase it when the code changes the crops of the same arguments
SCENE = (96, 96)
MARGIN = 0.1  # on every side, in units of the thing's longer side


def load(
    cache: str = "outputs/cache",
    name: str = "scene_crops",
    num_train: int = 2000,
    num_val: int = 500,
    size: int = 32,
    seed: int = 0,
    easy: bool = False,
) -> LabelledImages:
    """Opens the crops. They are drawn once and kept in a file of ``cache``.

    Each crop shows the largest thing of its own scene (see ``scenes``) with a margin; parts of
    other things may be visible. The classes are disc, square, triangle, ellipse and star. The same
    arguments give the same crops.

    Args:
        cache: folder; made when missing.
        name: of the data set.
        num_train: number of training crops.
        num_val: number of validation crops.
        size: S, side in pixels.
        seed: of the scenes; independent of the seeds of networks.
        easy: gives every class its own hue, so that the colour alone reveals the class.

    Raises:
        InputError: an argument out of its range, or a folder that cannot be written.
    """
    numbers = at_least(1, num_train=num_train, num_val=num_val)
    require("data", **numbers, **at_least(8, size=size), **at_least(0, seed=seed))
    key = short_hash([VERSION, OF_SCENES, num_train, num_val, size, seed, easy])
    counts = {"train": num_train, "val": num_val}
    crops = _crops(Path(cache) / "scene_crops" / f"{key}.npz", counts, size, seed, easy)
    ids = [f"{part}_{i:05}" for part, count in counts.items() for i in range(count)]
    held = InMemory(ids, *map(torch.from_numpy, crops))
    return LabelledImages(
        name=name,
        classes=CLASSES,
        train=tuple(ids[:num_train]),
        val=tuple(ids[num_train:]),
        pil_image=held.pil_image,
        target=held.target,
        checksum=key,
    )


def _crops(
    path: Path, counts: dict[str, int], size: int, seed: int, easy: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns pixels (n, 3, S, S) and classes (n,); draws them if their file is unreadable."""
    try:
        with np.load(path) as arrays:
            return arrays["pixels"], arrays["targets"]
    except Exception:  # missing or damaged
        pass
    drawn = [
        crop(size, np.random.default_rng([seed, stream, i]), easy)
        for stream, count in enumerate(counts.values())
        for i in range(count)
    ]
    pixels, targets = (np.stack(column) for column in zip(*drawn))
    buffer = io.BytesIO()
    np.savez(buffer, pixels=pixels, targets=targets)
    with writing(path, "paths.cache"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(buffer.getvalue()))
    return pixels, targets


def crop(size: int, random: np.random.Generator, easy: bool = False) -> tuple[np.ndarray, int]:
    """Cuts a square around the largest thing of a new scene: (3, S, S) uint8, and its class."""
    image, mask = scene(*SCENE, random, easy)
    largest, label = 0, 0
    for value in np.unique(mask[mask > 0]):
        parts, _ = ndimage.label(mask == value)
        areas = np.bincount(parts.ravel())[1:]
        if areas.max() > largest:
            largest, label = areas.max(), int(value)
            rows, columns = ndimage.find_objects(parts)[areas.argmax()]
    side = max(rows.stop - rows.start, columns.stop - columns.start) * (1 + 2 * MARGIN)
    y, x = (rows.start + rows.stop) / 2, (columns.start + columns.stop) / 2
    # keep the square inside the scene: make it smaller, or move it
    side = min(side, *SCENE)
    top = min(max(y - side / 2, 0), SCENE[0] - side)
    left = min(max(x - side / 2, 0), SCENE[1] - side)
    box = (left, top, left + side, top + side)
    picture = Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.array(picture).transpose(2, 0, 1), label - 1
