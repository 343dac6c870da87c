"""Draws the predictions of one or two trained networks for an image."""

import contextlib
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.data.augment import Photo, open_photo
from oversmoothing.lab.data.image_set import to_array, to_float, write_mask
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.grid import Column, coloured, draw_grid, heat, labels_in
from oversmoothing.lab.launch.script import DEVICE, SEED, Parser
from oversmoothing.lab.launch.trained import TrainedRun, load
from oversmoothing.lab.store.files import writing
from oversmoothing.lab.tasks.segmentation_network import multi_scale
from oversmoothing.lab.tasks.wsss.pictures import draw_looks

LONGEST = 512  # pixels of a side; larger images are scaled down
Draw = Callable[[Photo], tuple[Figure, np.ndarray | None]]  # picture, mask (H, W) uint8


def require_same_classes(run: TrainedRun, other: TrainedRun) -> None:
    """Raises InputError unless two runs have the same classes."""
    if run.classes != other.classes:
        raise InputError(
            f"{other.folder}: its classes differ from those of {run.folder}; expected two runs of "
            "one data set"
        )


def of_wsss(run: TrainedRun, other: TrainedRun | None, labels: str | None, crf: bool) -> Draw:
    """Returns a function that draws CAMs, refined label and mask of an image.

    Args:
        run: of ``task=wsss``.
        other: another such run, whose CAMs are drawn next to those of ``run``.
        labels: comma-separated classes whose CAMs are drawn; None: those of the image's label, or
            if it has none, those that the classifier finds.
        crf: whether a dense CRF refines the mask.

    Raises:
        InputError: an unknown class.
    """
    wanted = None if labels is None else _label(labels, run.classes)
    return partial(_draw_cams, run, other, wanted, crf)


def _label(names: str, classes: tuple[str, ...]) -> Tensor:
    """Returns the image-level label (K,)."""
    label = torch.zeros(len(classes))
    for name in map(str.strip, names.split(",")):
        if name not in classes:
            raise InputError(f"--labels: no class {name!r}; {meant(name, classes)}")
        label[classes.index(name)] = 1
    return label


def _draw_cams(
    run: TrainedRun, other: TrainedRun | None, wanted: Tensor | None, crf: bool, photo: Photo
) -> tuple[Figure, np.ndarray | None]:
    label = photo.label if wanted is None else wanted
    look = run.task.viewer(run.network, crf).look(photo.name, photo.image, label, photo.truth)
    shown = [(look, "")]
    if other:
        present = torch.zeros(len(run.classes))
        present[[value - 1 for value in look.labels]] = 1  # the same classes for both
        beside = other.task.viewer(other.network).look(photo.name, photo.image, present)
        shown = [(beside, f", {other.title}"), (look, f", {run.title}")]
    cams: list[Column] = [
        (f"CAM: {run.classes[value - 1]}{title}", [heat(found.image, found.cams[i])])
        for i, value in enumerate(look.labels)
        for found, title in shown
    ]
    return draw_looks([look], run.label_names, cams), look.mask


def of_segmentation(
    run: TrainedRun, other: TrainedRun | None, labels: str | None, crf: bool
) -> Draw:
    """Returns a function that draws the masks of an image.

    Args:
        run: of ``task=segmentation``.
        other: another such run, whose mask is drawn next to that of ``run``.
        labels: must be None.
        crf: must be False.

    Raises:
        InputError: ``labels`` or ``crf`` is given.
    """
    for option, given in (("labels", labels), ("crf", crf)):
        if given:
            raise InputError(f"--{option}: for runs of task=wsss, and {run.folder.name} is none; "
                             "leave it out")  # fmt: skip
    return partial(_draw_masks, [run, *([other] if other else [])])


def _draw_masks(runs: Sequence[TrainedRun], photo: Photo) -> tuple[Figure, np.ndarray]:
    masks = [predicted(run, photo.image) for run in runs]
    maps = [("ground truth", photo.truth.numpy())] if photo.truth is not None else []
    maps += zip(titles(runs), masks)
    columns = [("image", [to_array(photo.image)])]
    columns += [(title, [coloured(labels)]) for title, labels in maps]
    values = labels_in(*(labels for _, labels in maps))
    return draw_grid(columns, values, runs[0].label_names), masks[0]


def predicted(run: TrainedRun, image: Tensor) -> np.ndarray:
    """Returns the labels of an image, by multi-scale evaluation if the run has its settings.

    Shapes: (3, H, W) uint8 -> (H, W) uint8.
    """
    evaluation = run.task.evaluation
    place = next(run.network.parameters()).device
    scales = evaluation.ms_scales or [1.0]
    flip = evaluation.flip and bool(evaluation.ms_scales)
    logits = multi_scale(run.network, to_float(image.to(place)), scales, flip, evaluation.size)
    return logits.argmax(0).byte().cpu().numpy()


def titles(runs: Sequence[TrainedRun]) -> list[str]:
    """Returns a title for each run: with several its aggregator, and its id."""
    if len(runs) == 1:
        return ["mask"]
    return [f"{run.title}\n{run.folder.name[-10:]}" for run in runs]


USAGE = """Draws predictions of a trained network: CAMs and labels (task=wsss), or a mask.

oversmoothing predict photo.jpg --run outputs/wsss-voc_subset-centered-… --labels cat,person
oversmoothing predict 2007_000042 --run …centered… --compare …baseline… --crf
oversmoothing predict photo.jpg --run outputs/segmentation-voc_subset-em-… --compare …baseline…
"""
TASKS = {"wsss": of_wsss, "segmentation": of_segmentation}


def main() -> int:
    options = _options()
    run = load(options.run, options.seed, options.device, tuple(TASKS))
    other = None
    if options.compare:
        other = load(options.compare, options.seed, options.device, (run.task_name,))
        require_same_classes(run, other)
    draw = TASKS[run.task_name](run, other, options.labels, options.crf)
    given = [Path(word).resolve() for word in options.images if Path(word).exists()]
    if options.out.resolve() in [path.parent for path in given]:
        raise InputError(f"--out {options.out}: holds an image; choose another, which keeps it")
    with writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    data, failed = None, False
    with contextlib.suppress(InputError):  # the data of the run may be missing
        data = run.data
    for word in options.images:
        try:
            photo = open_photo(word, data, LONGEST)
            print(*_save(*draw(photo), options.out / photo.name), sep="\n", flush=True)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            failed = True
    return 1 if failed else 0


def _options() -> Namespace:
    parser = Parser(USAGE)
    parser.add_argument("images", nargs="+", help="files, or ids of the run's data set")
    parser.add_argument("--run", required=True, help="folder, name or id of a run")
    parser.add_argument("--seed", type=SEED, help="default: the first that was trained")
    parser.add_argument("--compare", help="another run of this task, shown beside it")
    parser.add_argument("--labels", help="cat,person; default: the image's, or what is found")
    parser.add_argument("--crf", action="store_true", help="refine the mask by a dense CRF")
    parser.add_argument("--out", type=Path, default=Path("outputs/predictions"),
                        help="folder; default: %(default)s")  # fmt: skip
    parser.add_argument("--device", default="auto", help=DEVICE)
    return parser.parse_args()


def _save(figure: Figure, mask: np.ndarray | None, stem: Path) -> list[Path]:
    """Saves a picture and a mask, and returns the paths."""
    paths = save(figure, stem)
    if mask is not None:
        paths.append(stem.with_name(f"{stem.name}-mask.png"))
        with writing(paths[-1]):
            write_mask(paths[-1], mask)
    return paths
