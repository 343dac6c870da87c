"""Trained networks of this package, on the validation data of their runs."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.data.loading import evenly_spaced
from oversmoothing.lab.launch.diagnose.subject import Request, Subject, in_batches, refuse
from oversmoothing.lab.launch.loading import load
from oversmoothing.lab.store.lookup import find
from oversmoothing.lab.tasks.glue import Tokens, open_tokenizer

SIDE = 448  # pixels of images that the run evaluates at their own size


def of_run(request: Request) -> Subject:
    """Loads a trained network, and reads validation examples as its evaluation does.

    Raises:
        InputError: the run, its weights or its data are missing.
    """
    given = {"images": request.images, "text": request.text, "weights": request.weights}
    if any(given.values()):
        _require_run(request.source)
    refuse(request, **given)
    device = str(request.device)
    run: Any = load(request.source, request.seed, device, tuple(BATCHES), request.trust)
    batches = BATCHES[run.task_name](run, request)
    count = min(request.limit, len(run.data.val))
    described = f"{count} examples of {run.data.name} val, seed {run.seed}"
    return Subject(run.network.backbone, batches, described)


def _require_run(source: str) -> None:
    """Raises InputError for a name that is no run of ours, such as that of a model."""
    try:
        find(source)
    except InputError as error:
        raise InputError(
            f"{source}: no such run; did you mean timm:{source} or hf:{source}?"
        ) from error


def _classified(run: Any, request: Request) -> Iterator[Tensor]:
    """Yields images as they are prepared to measure the accuracy."""
    for ids in in_batches(evenly_spaced(run.data.val, request.limit), request.batch):
        images = [run.task.evaluation.prepared(run.data.pil_image(id)) for id in ids]
        yield to_float(torch.stack(images))


def _squashed(run: Any, request: Request) -> Iterator[Tensor]:
    """Yields images squashed to a square, as they are prepared to measure CAMs."""
    side = getattr(run.task.evaluation, "size", None) or SIDE
    for ids in in_batches(evenly_spaced(run.data.val, request.limit), request.batch):
        images = [to_float(run.data.image(id))[None] for id in ids]
        yield torch.cat([F.interpolate(x, (side, side), mode="bilinear") for x in images])


def _sentences(run: Any, request: Request) -> Iterator[tuple[Tensor, ...]]:
    """Yields sentences one by one, without padding."""
    tokenizer = open_tokenizer(run.data.vocabulary, run.network.backbone)
    tokens = Tokens(run.data, tokenizer, run.task.max_length)
    for id in evenly_spaced(run.data.val, request.limit):
        one = tokens.collate([tokens.sample(id)])
        yield tuple(one[key][:, one["mask"][0]] for key in ("tokens", "mask", "types"))


BATCHES: dict[str, Callable[[Any, Request], Iterator[Any]]] = {
    "classification": _classified,
    "wsss": _squashed,
    "segmentation": _squashed,
    "glue": _sentences,
}
