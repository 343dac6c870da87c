"""Draws label maps and CAMs as colour images, and grids of images with a legend."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from oversmoothing.lab.data.image_set import palette
from oversmoothing.lab.drawing.panels import STYLE

CELL, GAP, HEAD, FOOT, LINE = 1.75, 0.05, 0.24, 0.28, 0.18  # inches
UNSURE = {255: "unsure or unlabelled"}
HEAT = "turbo"
OPACITY = 0.55  # of a CAM on its image

Column = tuple[str, Sequence[np.ndarray | None]]  # title; an image (H, W, 3) uint8 for every row


def coloured(labels: np.ndarray) -> np.ndarray:
    """Paints label values in VOC's colours. Shapes: (H, W) uint8 -> (H, W, 3) uint8."""
    return palette()[labels]


def heat(image: np.ndarray, cam: np.ndarray) -> np.ndarray:
    """Overlays a CAM on its image in grey.

    Shapes: image (H, W, 3) uint8, cam (H, W) in [0, 1] -> (H, W, 3) uint8.
    """
    colours = matplotlib.colormaps[HEAT](cam)[..., :3] * 255
    grey = image @ np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    return ((1 - OPACITY) * grey[..., None] + OPACITY * colours).round().astype(np.uint8)


def labels_in(*maps: np.ndarray | None) -> list[int]:
    """Returns the values that occur in label maps, in ascending order."""
    return sorted({int(v) for labels in maps if labels is not None for v in np.unique(labels)})


@matplotlib.rc_context(STYLE)
def draw_grid(columns: Sequence[Column], labels: Sequence[int], names: Sequence[str]) -> Figure:
    """Draws images in rows and columns, and a legend below them.

    Args:
        columns: at least one, all with the same number of rows.
        labels: label values that the legend explains.
        names: names of the label values 0, 1, …
    """
    heights = [_height(row) for row in zip(*(cells for _, cells in columns))]
    width = len(columns) * (CELL + GAP) + GAP
    patches = _patches(labels, dict(enumerate(names)) | UNSURE)
    lengths = [0.45 + 0.07 * len(patch.get_label()) for patch in patches]  # inches, about
    per_line = len(patches) if sum(lengths) < width else int(width / max(lengths))
    foot = FOOT + LINE * ((len(patches) - 1) // per_line)
    head = HEAD + LINE * max(title.count("\n") for title, _ in columns)
    figure = Figure(figsize=(width, head + sum(heights) + GAP * len(heights) + foot))
    for j, column in enumerate(columns):
        _draw_column(figure, GAP + j * (CELL + GAP), head, column, heights)
    figure.legend(handles=patches, loc="lower center", ncols=per_line, frameon=False,
                  fontsize=8, handlelength=1.0, borderaxespad=0.2)  # fmt: skip
    return figure


def _height(row: Sequence[np.ndarray | None]) -> float:
    """Returns a row's height in inches; upright images are made narrower than a cell."""
    return CELL * min(1.0, max(c.shape[0] / c.shape[1] for c in row if c is not None))


def _draw_column(
    figure: Figure, left: float, head: float, column: Column, heights: Sequence[float]
) -> None:
    """Draws a title and the cells below it; lengths are in inches."""
    title, cells = column
    width, height = figure.get_size_inches()
    figure.text((left + CELL / 2) / width, 1 - head / 2 / height, title, ha="center", va="center")
    bottom = height - head
    for cell, tall in zip(cells, heights):
        bottom -= tall
        axis = figure.add_axes((left / width, bottom / height, CELL / width, tall / height))
        axis.set_axis_off()
        if cell is None:
            axis.text(0.5, 0.5, "none", ha="center", va="center", color="0.5")
        else:
            axis.imshow(cell, interpolation="auto")
        bottom -= GAP


def _patches(labels: Sequence[int], names: dict[int, str]) -> list[Patch]:
    edge = {"edgecolor": "0.5", "linewidth": 0.4}
    return [Patch(facecolor=palette()[v] / 255, label=names[v], **edge) for v in labels]
