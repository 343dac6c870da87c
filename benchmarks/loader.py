"""Measures how fast one worker reads and augments training crops for segmentation.

    python benchmarks/loader.py --images data/VOC2012/JPEGImages

Decoding and the recipe's augmentation, in CPU seconds of one process.
"""

import argparse
import time
from functools import partial
from pathlib import Path

from record import parser_of, row, save

from oversmoothing.errors import InputError
from oversmoothing.lab.data.augment import Augment, labelled_crop
from oversmoothing.lab.data.image_set import ImageSet
from oversmoothing.lab.data.loading import train_batches
from oversmoothing.lab.launch.script import run_script


def main() -> None:
    options = arguments()
    speeds = images_per_second(Path(options.images), options.crop, options.batch, options.rounds)
    work = f"reading and augmenting crops of {options.crop}²"
    save([row(work, "images per CPU second", speeds)])


def images_per_second(folder: Path, crop: int, batch: int, rounds: int) -> list[float]:
    """Returns one value per batch, without the first batch."""
    files = {path.stem: str(path) for path in sorted(folder.glob("*.jpg"))}
    if not files:
        raise InputError(f"--images: no .jpg files in {folder}")
    ids = tuple(files)
    data = ImageSet("images", ("any",), ids, (), files, {}, dict.fromkeys(ids, (1,)), "")
    sample = partial(labelled_crop, data, Augment(crop))
    batches = train_batches(data, sample, batch, 1 + rounds, seed=0, workers=0)
    next(batches)
    speeds, started = [], time.process_time()
    for _ in batches:
        now = time.process_time()
        speeds.append(batch / (now - started))
        started = now
    return speeds


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--images", required=True, help="folder of .jpg files")
    parser.add_argument("--crop", type=int, default=448)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
