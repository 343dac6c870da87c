"""Pictures that a segmentation run leaves behind: image, ground truth, mask."""

import warnings

import numpy as np
import torch

from oversmoothing import distributed
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.segmentation.evaluator import Evaluator
from oversmoothing.tasks.wsss.panels import coloured
from oversmoothing.tasks.wsss.pictures import draw_grid, save

NUMBER = 6  # images


def leave_pictures(evaluator: Evaluator, recorder: Recorder, seed: int) -> None:
    """Leaves ``pictures-seed<seed>.png`` in a run's folder and tells the sink.

    Validation images, evenly spaced. What goes wrong here is a warning and ends no run.
    """
    if distributed.rank() > 0:
        return
    try:
        data = evaluator.data
        every = data.val
        ids = [every[i * len(every) // NUMBER] for i in range(min(NUMBER, len(every)))]
        rows = [_row(evaluator, id) for id in ids]
        titles = ("image", "ground truth", "mask")
        labels = sorted({int(v) for _, *maps in rows for m in maps for v in np.unique(m)})
        cells = [(image, coloured(truth), coloured(mask)) for image, truth, mask in rows]
        columns = list(zip(titles, zip(*cells)))
        names = data.label_names
        figure = draw_grid(columns, labels, names[1:], zero=names[0])
        [path] = save(figure, recorder.folder / f"pictures-seed{seed}", ["png"])
        recorder.picture("pictures", path)
    except Exception as error:  # hours of training are worth more than a picture
        why = str(error).split("\n")[0]
        warnings.warn(f"no pictures of seed {seed} ({type(error).__name__}: {why})", stacklevel=2)


@torch.no_grad()
def _row(evaluator: Evaluator, id: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    image, truth = evaluator.data.image(id), evaluator.data.mask(id)
    mask = evaluator.predict(image.float() / 255).byte().cpu()
    return image.permute(1, 2, 0).numpy(), truth.numpy(), mask.numpy()
