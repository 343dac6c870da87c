"""A made-up data set in VOC's layout, small enough to break on purpose."""

from pathlib import Path

import numpy as np
from PIL import Image

from oversmoothing.lab.data import voc
from oversmoothing.lab.data.image_set import ImageSet, write_mask

SIZE = (20, 30)


def make(root: Path, num_train: int = 6, num_val: int = 2) -> Path:
    """``root/VOC2012``; image i shows classes 1 + i mod 20 and 20, and an ignored border."""
    base = root / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClassAug", "ImageSets/Segmentation"):
        (base / folder).mkdir(parents=True)
    ids = [f"im{i}" for i in range(num_train + num_val)]
    for i, id in enumerate(ids):
        write_image(base / "JPEGImages" / f"{id}.jpg", i)
        mask = np.zeros(SIZE, dtype=np.uint8)
        mask[2:10, 2:10], mask[12:15, 12:20], mask[1], mask[5, 5] = 1 + i % 20, 20, 255, 255
        write_mask(base / "SegmentationClassAug" / f"{id}.png", mask)
    write_list(base, "train_aug", ids[:num_train])
    write_list(base, "val", ids[num_train:])
    return base


def write_image(path: Path, i: int) -> None:
    """Writes an image of noise with seed i."""
    pixels = np.random.default_rng(i).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_list(base: Path, part: str, ids: list[str]) -> None:
    """Writes a list with one id per line."""
    text = "".join(f"{id}\n" for id in ids)
    (base / "ImageSets/Segmentation" / f"{part}.txt").write_text(text)


def truncate(path: Path) -> None:
    """Leaves the first two thirds of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])


def load(base: Path, **options: object) -> ImageSet:
    """Calls ``voc.load`` with a cache next to the data."""
    return voc.load(str(base.parent), cache=str(base.parent / "cache"), **options)
