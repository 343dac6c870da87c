"""Draws predictions of a trained network: CAMs and refined label (task=wsss), segmentation mask.

python scripts/predict.py photo.jpg --run outputs/wsss-voc_subset-centered-… --labels cat,person
python scripts/predict.py 2007_000042 --run …centered… --compare …baseline… --crf
python scripts/predict.py photo.jpg --run outputs/segmentation-voc_subset-em-… --compare …baseline…
python scripts/predict.py photo.jpg --run hf:ORG/NAME         # or a folder of scripts/export.py
"""

import contextlib
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from oversmoothing.errors import InputError
from oversmoothing.lab.data.augment import open_photo
from oversmoothing.lab.data.image_set import write_mask
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.launch import loading, predict
from oversmoothing.lab.launch.script import SEED, add_trust, run_script, whole
from oversmoothing.lab.store.files import writing

TASKS = {"wsss": predict.of_wsss, "segmentation": predict.of_segmentation}


def main() -> int:
    options = _options()
    require_own_files(options.images, options.out)
    run = loading.load(options.run, options.seed, options.device, tuple(TASKS), options.trust)
    other = None
    if options.compare:
        tasks = (run.task_name,)
        other = loading.load(options.compare, options.seed, options.device, tasks, options.trust)
        predict.require_same_classes(run, other)
    draw = TASKS[run.task_name](run, other, options.labels, options.crf)
    with writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    data, failed = None, False
    with contextlib.suppress(InputError):  # the data of the run may be missing
        data = run.data
    for word in options.images:
        try:
            photo = open_photo(word, data, options.truth, options.longest)
            print(*_save(*draw(photo), options.out / photo.name, options.pdf), sep="\n", flush=True)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            failed = True
    return 1 if failed else 0


def require_own_files(images: list[str], out: Path) -> None:
    """Raises InputError if a picture would replace an image, or another picture."""
    found: dict[str, str] = {}
    for word in images:
        if out.resolve() == Path(word).resolve().parent and Path(word).exists():
            raise InputError(
                f"--out {out}: {word} lies there and could be replaced; choose another"
            )
        other = found.setdefault(Path(word).stem, word)
        if other != word:
            raise InputError(
                f"{other}, {word}: both pictures would have the same name; use two --out folders"
            )


def _options() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="+", help="files, or ids of the run's data set")
    what = "folder, name or id of a run, the folder of an exported one, or hf:ORG/NAME"
    parser.add_argument("--run", required=True, help=what)
    parser.add_argument("--seed", type=SEED, help="default: the first that was trained")
    parser.add_argument("--compare", help="another run of this task, shown beside it")
    parser.add_argument("--labels", help="cat,person; default: the image's, or what is found")
    parser.add_argument("--truth", type=Path, help="folder of masks <image>.png")
    parser.add_argument("--crf", action="store_true", help="refine the mask by a dense CRF")
    parser.add_argument(
        "--longest",
        type=whole(),
        default=512,
        help="longest side in pixels; larger images are scaled down",
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/predictions"))
    parser.add_argument("--pdf", action="store_true", help="save PDFs, too")
    parser.add_argument("--device", default="auto")
    add_trust(parser)
    return parser.parse_args()


def _save(figure: Figure, mask: np.ndarray | None, stem: Path, pdf: bool) -> list[Path]:
    """Saves a picture and a mask, and returns the paths."""
    paths = save(figure, stem, pdf)
    if mask is not None:
        paths.append(stem.with_name(f"{stem.name}-mask.png"))
        with writing(paths[-1]):
            write_mask(paths[-1], mask)
    return paths


if __name__ == "__main__":
    run_script(main)
