"""Draws images with CAMs, refined labels and masks side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from oversmoothing.lab.drawing.grid import Column, coloured, draw_grid, heat, labels_in
from oversmoothing.lab.drawing.leave import leave
from oversmoothing.lab.drawing.tokens import draw_tokens, token_rows
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.wsss.evaluator import Evaluator
from oversmoothing.lab.tasks.wsss.look import Look, Viewer, distinct_classes, look_at

NUMBER = 4  # images that a run shows


def leave_pictures(
    evaluator: Evaluator, recorder: Recorder, seed: int, result: dict[str, Any]
) -> None:
    """Saves ``pictures-seed<seed>.png`` and ``tokens-seed<seed>.png`` in a run's folder.

    They show validation images chosen by ``distinct_classes``, and token similarity by block.

    Args:
        result: of the seed, with ``layers_before`` and ``layers_after``.
    """

    def draw() -> dict[str, Any]:
        data = evaluator.data
        viewer = Viewer(evaluator.network, evaluator.method, evaluator.evaluation)
        looks = [look_at(viewer, data, id) for id in distinct_classes(data, NUMBER)]
        tokens = draw_tokens(token_rows({"": [result]}))
        return {"pictures": draw_looks(looks, data.label_names), "tokens": tokens}

    leave(recorder, seed, draw)


def draw_looks(
    looks: Sequence[Look], label_names: Sequence[str], cams: Sequence[Column] = ()
) -> Figure:
    """Draws a row for each image, and a legend of the labels that occur.

    Args:
        label_names: names of the labels 0, 1, …
        cams: as for ``columns_of``.
    """
    maps = [labels for look in looks for labels in (look.truth, look.refined, look.mask)]
    return draw_grid(columns_of(looks, cams), labels_in(*maps), label_names)


def columns_of(looks: Sequence[Look], cams: Sequence[Column] = ()) -> list[Column]:
    """Returns the columns image, truth, CAMs, refined label and mask, without empty ones.

    Args:
        looks: one for each row.
        cams: columns that replace the strongest CAM.
    """
    found = [
        ("image", [look.image for look in looks]),
        ("ground truth", [_shown(look.truth) for look in looks]),
        *(cams or [("CAM", [strongest(look) for look in looks])]),
        ("refined label", [_shown(look.refined) for look in looks]),
        ("mask", [_shown(look.mask) for look in looks]),
    ]
    return _filled(found)


def _filled(columns: Sequence[Column]) -> list[Column]:
    """Removes empty columns."""
    return [column for column in columns if any(cell is not None for cell in column[1])]


def draw_pair(pair: Sequence[tuple[str, Sequence[Look]]], label_names: Sequence[str]) -> Figure:
    """Draws the outputs of several networks for the same images: image, truth, CAMs and masks.

    Args:
        pair: title and looks of each network.
        label_names: names of the labels 0, 1, …
    """
    first = pair[0][1]
    maps = [look.truth for look in first] + [look.mask for _, looks in pair for look in looks]
    columns = [
        ("image", [look.image for look in first]),
        ("ground truth", [_shown(look.truth) for look in first]),
        *((f"CAM, {title}", [strongest(look) for look in looks]) for title, looks in pair),
        *((f"mask, {title}", [_shown(look.mask) for look in looks]) for title, looks in pair),
    ]
    return draw_grid(_filled(columns), labels_in(*maps), label_names)


def strongest(look: Look) -> np.ndarray:
    """Overlays the maximum of an image's CAMs on the image. Shapes: -> (H, W, 3) uint8."""
    return heat(look.image, look.cams.max(axis=0, initial=0.0))


def _shown(labels: np.ndarray | None) -> np.ndarray | None:
    return None if labels is None else coloured(labels)
