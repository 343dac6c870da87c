"""What a trained network makes of images: CAMs and refined label (task=wsss), segmentation mask.

python scripts/predict.py photo.jpg --run outputs/wsss-voc_subset-centered-… --labels cat,person
python scripts/predict.py 2007_000042 --run …centered… --compare …baseline… --crf
python scripts/predict.py photo.jpg --run outputs/segmentation-voc_subset-em-… --compare …baseline…
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from oversmoothing.data.images.files import write_mask
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.images.photo import Photo, open_photo
from oversmoothing.errors import InputError, meant
from oversmoothing.launch import trained
from oversmoothing.launch.script import run_script
from oversmoothing.launch.trained import Trained
from oversmoothing.papers.masks import masks_figure, predicted
from oversmoothing.papers.wsss_figures import prediction, require_same_classes
from oversmoothing.store.files import writing
from oversmoothing.tasks.wsss.crf import load_pydensecrf
from oversmoothing.tasks.wsss.pictures import save

Draw = Callable[[Photo], tuple[Figure, np.ndarray | None]]  # its picture, its mask (H, W) uint8
TASKS = ("wsss", "segmentation")


def main() -> int:
    options = _options()
    run = trained.load(options.run, options.seed, options.device, TASKS)
    other = None
    if options.compare:
        other = trained.load(options.compare, options.seed, options.device, (run.task_name,))
        require_same_classes(run, other)
    draw = {"wsss": _wsss, "segmentation": _segmentation}[run.task_name](run, other, options)
    with writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    data, failed = _data(run), 0
    for word in options.images:
        try:
            print(*_predict(open_photo(word, data, options.truth, options.longest), draw, options),
                  sep="\n", flush=True)  # fmt: skip
        except InputError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="+", help="files, or ids of the run's data set")
    parser.add_argument("--run", required=True, help="folder, name or id of a run")
    parser.add_argument("--seed", type=int, help="default: the first that was trained")
    parser.add_argument("--compare", help="another run of this task, shown beside it")
    parser.add_argument("--labels", help="cat,person; default: the image's, or what is found")
    parser.add_argument("--truth", type=Path, help="folder of masks <image>.png")
    parser.add_argument("--crf", action="store_true", help="refine the mask by a dense CRF")
    parser.add_argument("--longest", type=int, default=512, help="larger images are shrunk to it")
    parser.add_argument("--out", type=Path, default=Path("outputs/predictions"))
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def _data(run: Trained) -> ImageSet | None:
    """The images that a run was trained on, which need not be here."""
    try:
        return run.data
    except InputError:
        return None


def _wsss(run: Trained, other: Trained | None, options: argparse.Namespace) -> Draw:
    if options.crf:
        load_pydensecrf()
    return partial(_cams, run, other, _label(options.labels, run.classes), options.crf)


def _cams(
    run: Trained, other: Trained | None, wanted: Tensor | None, crf: bool, photo: Photo
) -> tuple[Figure, np.ndarray | None]:
    label = photo.label if wanted is None else wanted
    look = run.task.viewer(run.network, crf).look(photo.name, photo.image, label, photo.truth)
    present = torch.zeros(len(run.classes))
    present[[value - 1 for value in look.labels]] = 1  # what is found in one is shown of both
    other_look = other and other.task.viewer(other.network).look(photo.name, photo.image, present)
    return prediction(look, run, other_look, other), look.mask


def _label(names: str | None, classes: tuple[str, ...]) -> Tensor | None:
    """Image-level label (K,) of comma-separated names."""
    if names is None:
        return None
    label = torch.zeros(len(classes))
    for name in names.split(","):
        if name.strip() not in classes:
            raise InputError(f"--labels: no class {name.strip()!r}; {meant(name, classes)}")
        label[classes.index(name.strip())] = 1
    return label


def _segmentation(run: Trained, other: Trained | None, options: argparse.Namespace) -> Draw:
    for key in ("labels", "crf"):
        if getattr(options, key):
            raise InputError(f"--{key}: for runs of task=wsss, {run.folder.name} is none; leave "
                             "it out")  # fmt: skip
    return partial(_masks, [run, *([other] if other else [])])


def _masks(runs: list[Trained], photo: Photo) -> tuple[Figure, np.ndarray]:
    masks = [predicted(run, photo.image) for run in runs]
    return masks_figure(photo, runs, masks), masks[0]


def _predict(photo: Photo, draw: Draw, options: argparse.Namespace) -> list[Path]:
    """Files written for one image."""
    figure, mask = draw(photo)
    paths = save(figure, options.out / photo.name)
    if mask is None:
        return paths
    path = options.out / f"{photo.name}-mask.png"
    with writing(path):
        write_mask(path, mask)
    return [*paths, path]


if __name__ == "__main__":
    run_script(main)
