"""Figure 2 of Centered Self-Attention Layers, and the same row for any image."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from oversmoothing.errors import InputError
from oversmoothing.launch.trained import Trained
from oversmoothing.tasks.wsss.look import Look, look_at
from oversmoothing.tasks.wsss.panels import Column, columns_of, heat, labels_in, strongest
from oversmoothing.tasks.wsss.pictures import draw_grid


def figure2(without: Trained, centered: Trained, ids: Sequence[str]) -> Figure:
    """A row an image: image, truth, CAM of either run, refined label and mask of the second.

    CAMs are of the classes that the image is labelled with; the strongest at every pixel is shown.

    Args:
        without: the baseline.
        centered: of the same data set.
        ids: of its images.

    Raises:
        InputError: different classes, an id that the data set lacks, or a damaged image.
    """
    require_same_classes(centered, without)
    data = centered.data
    for id in ids:
        if id not in data.image_files:
            raise InputError(f"{id}: no image of {data.name}; expected ids such as {data.val[0]}")
    looks, others = (
        [look_at(run.task.viewer(run.network), data, id) for id in ids]
        for run in (centered, without)
    )
    cams = [
        (f"CAM, {run.title}", [strongest(look) for look in found])
        for run, found in ((without, others), (centered, looks))
    ]
    return draw_grid(columns_of(looks, cams), labels_in(looks), centered.classes)


def prediction(
    look: Look, run: Trained, other_look: Look | None = None, other: Trained | None = None
) -> Figure:
    """One image: a CAM for every class, and for either run where there are two.

    Args:
        look: by ``run``.
        other_look: of the same image and classes, by ``other``.
    """
    runs = [(other_look, other), (look, run)] if other_look and other else [(look, None)]
    cams: list[Column] = []
    for i, label in enumerate(look.labels):
        for found, which in runs:
            what = run.classes[label - 1] + (f", {which.title}" if which else "")
            cams.append((f"CAM: {what}", [heat(found.image, found.cams[i])]))
    return draw_grid(columns_of([look], cams), labels_in([look]), run.classes)


def require_same_classes(run: Trained, other: Trained) -> None:
    """InputError where two runs do not know the same classes."""
    if run.classes != other.classes:
        raise InputError(
            f"{other.folder}: its classes differ from those of {run.folder}; expected two runs of "
            "one data set"
        )
