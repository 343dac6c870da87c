"""Pictures of what a network sees: a grid of panels, and those that a run leaves behind."""

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
from oversmoothing.data.images.classes import palette
from oversmoothing.drawing.tokens import draw_tokens
from oversmoothing.store.files import write_atomically
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.wsss.evaluator import Evaluator
from oversmoothing.tasks.wsss.look import Viewer, distinct_classes, look_at
from oversmoothing.tasks.wsss.panels import Column, columns_of, labels_in

STYLE = {"font.size": 9, "pdf.fonttype": 42}  # text stays text
CELL, GAP, HEAD, FOOT, LINE = 1.75, 0.05, 0.24, 0.28, 0.18  # inches


def leave_pictures(
    evaluator: Evaluator, recorder: Recorder, seed: int, result: dict[str, Any]
) -> None:
    """Leaves ``pictures-seed<seed>.png`` and ``tokens-seed<seed>.png`` in a run's folder.

    Four validation images that ``distinct_classes`` chooses, and token similarity by block; the
    sink is told of both. What goes wrong here is a warning and ends no run.

    Args:
        result: of the seed, with ``layers_before`` and ``layers_after``.
    """
    if distributed.rank() > 0:
        return
    try:
        figures = {"pictures": _overview(evaluator), "tokens": draw_tokens({"": [result]})}
        for name, figure in figures.items():
            [path] = save(figure, recorder.folder / f"{name}-seed{seed}", ["png"])
            recorder.picture(name, path)
    except Exception as error:  # hours of training are worth more than a picture
        why = str(error).split("\n")[0]
        warnings.warn(f"no pictures of seed {seed} ({type(error).__name__}: {why})", stacklevel=2)


def _overview(evaluator: Evaluator, number: int = 4) -> Figure:
    viewer = Viewer(evaluator.network, evaluator.method, evaluator.evaluation)
    data = evaluator.data
    looks = [look_at(viewer, data, id) for id in distinct_classes(data, number)]
    return draw_grid(columns_of(looks), labels_in(looks), data.classes)


def draw_grid(
    columns: Sequence[Column],
    labels: Sequence[int],
    classes: Sequence[str],
    zero: str = "background",
) -> Figure:
    """Images in rows and columns, and a legend of the colours.

    Args:
        columns: at least one; every one with a cell a row.
        labels: values that the legend names.
        classes: K names of the values 1…K.
        zero: name of the value 0.
    """
    heights = [_height(row) for row in zip(*(cells for _, cells in columns))]
    width = len(columns) * (CELL + GAP) + GAP
    patches = _patches(labels, (zero, *classes))
    lengths = [0.45 + 0.07 * len(patch.get_label()) for patch in patches]  # inches, about
    per_line = len(patches) if sum(lengths) < width else int(width / max(lengths))
    foot = FOOT + LINE * ((len(patches) - 1) // per_line)
    head = HEAD + LINE * max(title.count("\n") for title, _ in columns)
    height = head + sum(heights) + GAP * len(heights) + foot
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        for j, column in enumerate(columns):
            _draw_column(figure, GAP + j * (CELL + GAP), head, column, heights)
        figure.legend(handles=patches, loc="lower center", ncols=per_line, frameon=False,
                      fontsize=8, handlelength=1.0, borderaxespad=0.2)  # fmt: skip
    return figure


def _height(row: Sequence[np.ndarray | None]) -> float:
    """Of a row in inches: upright images are made narrower, not taller than wide."""
    return CELL * min(1.0, max(c.shape[0] / c.shape[1] for c in row if c is not None))


def _draw_column(
    figure: Figure, left: float, head: float, column: Column, heights: Sequence[float]
) -> None:
    """A title within the head and its cells below it; all in inches."""
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


def _patches(labels: Sequence[int], names_from_0: Sequence[str]) -> list[Patch]:
    """What the colours of label values mean."""
    names = {**dict(enumerate(names_from_0)), 255: "unsure or unlabelled"}
    edge = {"edgecolor": "0.5", "linewidth": 0.4}
    return [Patch(facecolor=palette()[v] / 255, label=names[v], **edge) for v in labels]


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
            figure.savefig(data, format=path.suffix[1:], dpi=110, metadata=undated)
        write_atomically(path, lambda file, data=data: file.write(data.getbuffer()))
    return paths
