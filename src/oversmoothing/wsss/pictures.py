"""Pictures of what a network sees: rows of image, truth, CAM, refined label, mask."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from oversmoothing import distributed
from oversmoothing.data.palette import palette
from oversmoothing.files import write_atomically
from oversmoothing.runs import Run
from oversmoothing.wsss.evaluation import Evaluator
from oversmoothing.wsss.look import Look, Viewer, distinct_classes, look_at
from oversmoothing.wsss.token_pictures import draw_tokens

STYLE = {"font.size": 9, "pdf.fonttype": 42}  # text stays text
UNSURE = 255
HEAT = "turbo"
OPACITY = 0.55  # of a heat map on its image
CELL, GAP, HEAD, FOOT = 1.75, 0.05, 0.24, 0.34  # inches

Column = tuple[str, Sequence[np.ndarray | None]]  # title, an image (H, W, 3) uint8 for every row


def coloured(labels: np.ndarray) -> np.ndarray:
    """Label values in VOC's colours. Shapes: (H, W) uint8 -> (H, W, 3) uint8."""
    return palette()[labels]


def heat(image: np.ndarray, cam: np.ndarray) -> np.ndarray:
    """A CAM as colours on its image. Shapes: (H, W, 3) uint8, (H, W) in [0, 1] -> (H, W, 3)."""
    colours = matplotlib.colormaps[HEAT](cam)[..., :3] * 255
    return ((1 - OPACITY) * image + OPACITY * colours).round().astype(np.uint8)


def strongest(look: Look) -> np.ndarray:
    """Heat map of the maximum over the classes of an image."""
    H, W, _ = look.image.shape
    cam = look.cams.max(axis=0) if len(look.cams) else np.zeros((H, W))
    return heat(look.image, cam)


def columns_of(looks: Sequence[Look], cams: Sequence[Column] = ()) -> list[Column]:
    """Image, truth, CAMs, refined label, mask; what no row has is left out.

    Args:
        cams: in the place of the strongest CAM.
    """
    found = [
        ("image", [look.image for look in looks]),
        ("ground truth", [_shown(look.truth) for look in looks]),
        *(cams or [("CAM", [strongest(look) for look in looks])]),
        ("refined label", [_shown(look.refined) for look in looks]),
        ("mask", [_shown(look.mask) for look in looks]),
    ]
    return [column for column in found if any(cell is not None for cell in column[1])]


def _shown(labels: np.ndarray | None) -> np.ndarray | None:
    return None if labels is None else coloured(labels)


def labels_in(looks: Sequence[Look]) -> list[int]:
    """Every label value that a picture of ``looks`` has a colour for, background left out."""
    maps = [m for look in looks for m in (look.truth, look.refined, look.mask) if m is not None]
    return sorted({int(value) for labels in maps for value in np.unique(labels)} - {0})


def draw_grid(columns: Sequence[Column], labels: Sequence[int], classes: Sequence[str]) -> Figure:
    """Images in rows and columns, and a legend of the colours.

    Args:
        columns: at least one; every one with a cell a row.
        labels: values that the legend names.
        classes: K names of the values 1…K.
    """
    heights = [_height(row) for row in zip(*(cells for _, cells in columns))]
    names = {0: "background", **dict(enumerate(classes, start=1)), UNSURE: "unsure or not labelled"}
    shown = [0, *labels]
    width = len(columns) * (CELL + GAP) + GAP
    per_line = max(1, int(width / (0.55 + 0.075 * max(len(names[label]) for label in shown))))
    foot = FOOT + 0.17 * ((len(shown) - 1) // per_line)
    height = HEAD + sum(heights) + GAP * len(heights) + foot
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        for j, (title, cells) in enumerate(columns):
            top = height - HEAD
            for cell, tall in zip(cells, heights):
                place = (GAP + j * (CELL + GAP), top - tall, CELL, tall)
                _cell(figure, [part / (width, height)[i % 2] for i, part in enumerate(place)], cell)
                top -= tall + GAP
            x = (GAP + j * (CELL + GAP) + CELL / 2) / width
            figure.text(x, 1 - HEAD / 2 / height, title, ha="center", va="center")
        figure.legend(
            handles=[_patch(label, names[label]) for label in shown],
            loc="lower center",
            ncols=min(per_line, len(shown)),
            frameon=False,
            fontsize=8,
            handlelength=1.0,
            borderaxespad=0.2,
        )
    return figure


def _height(row: Sequence[np.ndarray | None]) -> float:
    """Of a row in inches: upright images are made narrower, not taller than wide."""
    return CELL * min(1.0, max(c.shape[0] / c.shape[1] for c in row if c is not None))


def _cell(figure: Figure, place: Sequence[float], image: np.ndarray | None) -> None:
    axis = figure.add_axes(place)
    axis.set_axis_off()
    if image is None:
        axis.text(0.5, 0.5, "none", ha="center", va="center", color="0.5")
    else:
        axis.imshow(image, interpolation="none")


def _patch(label: int, name: str) -> Patch:
    return Patch(facecolor=palette()[label] / 255, edgecolor="0.5", linewidth=0.4, label=name)


def save(figure: Figure, stem: Path, kinds: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Writes ``stem``.png and .pdf, without a date inside: the same data make the same files.

    Raises:
        InputError: a file that cannot be written.
    """
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
    for path in paths:
        data = io.BytesIO()
        undated = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
        with matplotlib.rc_context(STYLE):
            figure.savefig(data, format=path.suffix[1:], dpi=200, metadata=undated)
        write_atomically(path, lambda file, data=data: file.write(data.getbuffer()))
    return paths


def leave_pictures(
    evaluator: Evaluator, run: Run, seed: int, result: dict[str, Any], number: int = 4
) -> None:
    """Leaves ``pictures-seed<seed>.png`` and ``tokens-seed<seed>.png`` in a run's folder.

    The sink is told of both. What goes wrong here is a warning and ends no run.

    Args:
        result: of the seed, with ``layers_before`` and ``layers_after``.
        number: of validation images, chosen by ``distinct_classes``.
    """
    if distributed.rank() > 0:
        return
    try:
        figures = {"pictures": _overview(evaluator, number), "tokens": draw_tokens({"": [result]})}
        for name, figure in figures.items():
            [path] = save(figure, run.dir / f"{name}-seed{seed}", ["png"])
            run.picture(name, path)
    except Exception as error:  # hours of training are worth more than a picture
        why = str(error).split("\n")[0]
        warnings.warn(f"no pictures of seed {seed}: {type(error).__name__}: {why}", stacklevel=2)


def _overview(evaluator: Evaluator, number: int) -> Figure:
    viewer = Viewer(evaluator.network, evaluator.method, evaluator.evaluation)
    data = evaluator.data
    looks = [look_at(viewer, data, id) for id in distinct_classes(data, number)]
    return draw_grid(columns_of(looks), labels_in(looks), data.classes)
