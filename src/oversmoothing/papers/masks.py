"""Masks that trained runs of ``task=segmentation`` give an image, side by side."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from oversmoothing.config.instantiate import build
from oversmoothing.data.images.photo import Photo
from oversmoothing.launch.trained import Trained
from oversmoothing.tasks.segmentation.whole import multi_scale
from oversmoothing.tasks.wsss.panels import coloured
from oversmoothing.tasks.wsss.pictures import draw_grid


def predicted(run: Trained, image: Tensor) -> np.ndarray:
    """Labels of an image as the run's multi-scale evaluation finds them, single-scale without one.

    Shapes: (3, H, W) uint8 -> (H, W) uint8.
    """
    evaluation = build(run.config.task.evaluation)
    place = next(run.network.parameters()).device
    scales = evaluation.ms_scales or [1.0]
    flip = evaluation.flip and bool(evaluation.ms_scales)
    logits = multi_scale(run.network, image.to(place) / 255, scales, flip, evaluation.size)
    return logits.argmax(0).byte().cpu().numpy()


def masks_figure(photo: Photo, runs: Sequence[Trained], masks: Sequence[np.ndarray]) -> Figure:
    """Image, truth where it is known, and the mask of every run.

    Args:
        runs: at least one; of the same labels.
        masks: of the image, by run.
    """
    maps = [("ground truth", photo.truth.numpy())] if photo.truth is not None else []
    maps += [(_title(run, runs), mask) for run, mask in zip(runs, masks)]
    columns = [("image", [photo.image.permute(1, 2, 0).numpy()])]
    columns += [(title, [coloured(labels)]) for title, labels in maps]
    values = sorted({int(value) for _, labels in maps for value in np.unique(labels)})
    names = runs[0].label_names
    return draw_grid(columns, values, names[1:], zero=names[0])


def _title(run: Trained, runs: Sequence[Trained]) -> str:
    """What tells a run from the others: its aggregator, the options in which it differs, its id."""
    if len(runs) == 1:
        return "mask"
    titles = [_aggregator(each, runs) for each in runs]
    title = titles[runs.index(run)]
    return title if titles.count(title) == 1 else f"{title}\n{run.folder.name[-10:]}"


def _aggregator(run: Trained, runs: Sequence[Trained]) -> str:
    """``no unit``; ``EM``; below it the options that others of this kind have otherwise."""
    own = run.config.aggregator
    alike = [r.config.aggregator for r in runs if r.config.aggregator._target_ == own._target_]
    kind = own._target_.split(".")[-1]
    differing = [key for key in own if any(other.get(key) != own[key] for other in alike)]
    options = [f"{key}={own[key]}" for key in differing]
    return "\n".join(["no unit" if kind == "NoAggregator" else kind, *options])
