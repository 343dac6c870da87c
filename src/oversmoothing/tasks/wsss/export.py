"""Segmentation of a whole split, for VOC's evaluation server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from tqdm import tqdm

from oversmoothing.data.images.classes import class_names
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.data.images.images import read_size
from oversmoothing.data.loading import evaluation_items
from oversmoothing.errors import InputError
from oversmoothing.metrics.segmentation import Confusion
from oversmoothing.store.files import writing
from oversmoothing.tasks.wsss.crf_parallel import Job, crf_labels
from oversmoothing.tasks.wsss.evaluation import Evaluation
from oversmoothing.tasks.wsss.network import Network
from oversmoothing.tasks.wsss.segment import multi_scale_probabilities
from oversmoothing.tasks.wsss.submission import write_submission


def export(
    network: Network,
    data: ImageSet,
    evaluation: Evaluation,
    folder: Path,
    split: Literal["test", "val"] = "test",
) -> tuple[Path, float | None]:
    """Writes the submission of all images of ``data.val``, whatever the evaluation's limits are.

    Args:
        network: in evaluation mode, its decoder trained.
        data: VOC; images without mask are not measured.
        evaluation: scales, fusion and CRF.
        folder: of the zip; made when missing.
        split: by whose name the server is told.

    Returns:
        Path of the zip, and the mIoU of what is in it in percent; None unless all have masks.

    Raises:
        InputError: other classes than VOC's, a damaged image, no pydensecrf, the disk.
    """
    if data.classes != class_names("voc"):
        raise InputError(f"data {data.name}: the server knows VOC's 20 classes, no others")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    count = Confusion(1 + len(data.classes)) if set(data.val) <= set(data.mask_files) else None
    items = _counted(segmentations(network, data, evaluation), data, count)
    sizes = {id: read_size(data.image_files[id]) for id in data.val}
    path = write_submission(folder, items, split, sizes)
    return path, count.miou() if count else None


def segmentations(
    network: Network, data: ImageSet, evaluation: Evaluation
) -> Iterator[tuple[str, np.ndarray]]:
    """Final labels of ``data.val``: multi-scale, and the CRF's where it is on.

    Yields:
        (id, uint8 (H, W)).
    """
    jobs = _probabilities(network, data, evaluation)
    if evaluation.crf:
        yield from crf_labels(jobs, evaluation.crf, evaluation.workers, total=len(data.val))
        return
    for name, _, found in jobs:
        yield name, found.argmax(axis=0).astype(np.uint8)


def _probabilities(network: Network, data: ImageSet, evaluation: Evaluation) -> Iterator[Job]:
    device = next(network.parameters()).device
    scales = evaluation.ms_scales or [1.0]
    items = evaluation_items(data, data.val, evaluation.workers, masks=False)
    bar = {"leave": False, "disable": None, "dynamic_ncols": True}  # None: off unless a terminal
    for item in tqdm(items, "multi-scale", len(data.val), **bar):
        image = item["image"].to(device).float() / 255
        with torch.no_grad():
            found = multi_scale_probabilities(
                network, image, scales, evaluation.ms_size, evaluation.fusion
            )
        yield item["name"], item["image"].permute(1, 2, 0).numpy(), found.cpu().numpy()


def _counted(
    items: Iterator[tuple[str, np.ndarray]], data: ImageSet, count: Confusion | None
) -> Iterator[tuple[str, np.ndarray]]:
    for name, labels in items:
        if count:
            count.update(labels, data.mask(name), name)
        yield name, labels
