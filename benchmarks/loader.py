"""How fast training batches are read and augmented."""

import time
from functools import partial
from pathlib import Path

from oversmoothing.data.images.augment import Augment, labelled_crop
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.loading import train_batches
from oversmoothing.errors import InputError

FIRST, NUMBER = 4, 20  # batches: the worker starts and runs ahead; then these are timed


def images_per_second(folder: Path, crop: int, batch: int) -> float:
    """Of one worker: decoding, the recipe's augmentation, and the way to this process."""
    files = {path.stem: str(path) for path in sorted(folder.glob("*.jpg"))}
    if not files:
        raise InputError(f"--images: no .jpg files in {folder}")
    ids = tuple(files)
    data = ImageSet("images", ("any",), ids, (), files, {}, dict.fromkeys(ids, (1,)), "")
    sample = partial(labelled_crop, data, Augment(crop))
    batches = train_batches(data, sample, batch, FIRST + NUMBER, seed=0, workers=1)
    for _ in range(FIRST):
        next(batches)
    started = time.perf_counter()
    count = sum(len(each["name"]) for each in batches)
    return count / (time.perf_counter() - started)
