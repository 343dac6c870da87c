"""How fast training batches are read and augmented, and whether that keeps a step fed."""

import argparse
import math
import time
from functools import partial
from pathlib import Path

from oversmoothing.data.images.augment import Augment, labelled_crop
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.loading import train_batches
from oversmoothing.errors import InputError

FIRST, NUMBER = 4, 20  # batches: the worker starts and runs ahead; then these are timed


def fed(options: argparse.Namespace, needed: float) -> str:
    """Images/s that one worker gives, and how many workers a step needs.

    Args:
        options: ``images`` (folder of .jpg files, or None), ``crop``, ``batch``.
        needed: images/s that the step takes.
    """
    if not options.images:
        return "data loader: give --images to measure it"
    speed = images_per_second(Path(options.images), options.crop, options.batch)
    workers = math.ceil(needed / speed)
    return f"data loader: {speed:.1f} images/s a worker; {workers} a process keep a step fed"


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
