"""Write the segmentation of a whole split for VOC's evaluation server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm import tqdm

from oversmoothing.data.images.classes import class_names
from oversmoothing.data.images.files import read_size
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.loading import evaluation_items
from oversmoothing.errors import InputError
from oversmoothing.metrics.segmentation import Confusion
from oversmoothing.store.files import writing
from oversmoothing.tasks.wsss.crf_parallel import crf_labels
from oversmoothing.tasks.wsss.evaluation import Evaluation
from oversmoothing.tasks.wsss.network import Network
from oversmoothing.tasks.wsss.segment import segmented
from oversmoothing.tasks.wsss.submission import write_submission


def export(
    network: Network,
    data: ImageSet,
    evaluation: Evaluation,
    folder: Path,
    split: Literal["test", "val"] = "test",
) -> tuple[Path, float | None]:
    """Writes the submission of all images of ``data.val``; limits of the evaluation are ignored.

    Args:
        network: in evaluation mode, with a trained decoder.
        data: VOC; measured only if every image has a mask.
        evaluation: scales, fusion and CRF.
        folder: for the zip; made when missing.
        split: name of the split for the server.

    Returns:
        Path of the zip, and its mIoU in percent; None unless every image has a mask.

    Raises:
        InputError: other classes than VOC's, a damaged image, no pydensecrf, or a full disk.
    """
    if data.classes != class_names("voc"):
        raise InputError(
            f"data {data.name}: VOC's server takes only VOC's 20 classes; choose a run on VOC"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    count = Confusion(1 + len(data.classes)) if set(data.val) <= set(data.mask_files) else None

    def items() -> Iterator[tuple[str, np.ndarray]]:
        for name, labels in segmentations(network, data, evaluation):
            if count:
                count.update(labels, data.mask(name), name)
            yield name, labels

    sizes = {id: read_size(data.image_files[id]) for id in data.val}
    path = write_submission(folder, items(), sizes, split)
    return path, count.miou() if count else None


def segmentations(
    network: Network, data: ImageSet, evaluation: Evaluation
) -> Iterator[tuple[str, np.ndarray]]:
    """Segments ``data.val`` at several scales, with the CRF if the evaluation has one.

    Yields:
        (id, uint8 (H, W)).
    """
    items = evaluation_items(data, data.val, evaluation.workers, masks=False)
    bar = {"leave": False, "disable": None, "dynamic_ncols": True}  # None: only on a terminal
    items = tqdm(items, "multi-scale", len(data.val), **bar)
    jobs = (segmented(network, item["name"], item["image"], evaluation) for item in items)
    if evaluation.crf:
        yield from crf_labels(jobs, evaluation.crf, evaluation.workers, total=len(data.val))
        return
    for name, _, found in jobs:
        yield name, found.argmax(axis=0).astype(np.uint8)
