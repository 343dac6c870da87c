"""Saves pictures in the folder of a run of ``task=segmentation``."""

from typing import Any

import numpy as np
import torch

from oversmoothing.lab.data.image_set import to_array, to_float
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.drawing.grid import coloured, draw_grid, labels_in
from oversmoothing.lab.drawing.leave import leave
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.segmentation.evaluator import Evaluator

NUMBER = 6  # images


def leave_pictures(evaluator: Evaluator, recorder: Recorder, seed: int) -> None:
    """Saves ``pictures-seed<seed>.png``: evenly spaced validation images, truth and mask."""

    def draw() -> dict[str, Any]:
        rows = [_row(evaluator, id) for id in evenly_spaced(evaluator.data.val, NUMBER)]
        images, truths, masks = zip(*rows)
        columns = [("image", images), ("ground truth", list(map(coloured, truths)))]
        columns.append(("mask", list(map(coloured, masks))))
        names = evaluator.data.label_names
        return {"pictures": draw_grid(columns, labels_in(*truths, *masks), names)}

    leave(recorder, seed, draw)


@torch.no_grad()
def _row(evaluator: Evaluator, id: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    image, truth = evaluator.data.image(id), evaluator.data.mask(id)
    mask = evaluator.predict(to_float(image)).byte().cpu()
    return to_array(image), truth.numpy(), mask.numpy()
