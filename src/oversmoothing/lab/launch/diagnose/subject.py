"""The model and the inputs to diagnose."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oversmoothing.errors import InputError
from oversmoothing.lab.data.loading import evenly_spaced

IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")


@dataclass(frozen=True)
class Request:
    """The options of the command.

    Args:
        source: ``timm:NAME``, ``hf:NAME_OR_FOLDER``, or a run of ours.
        images: folder of images.
        text: file with one text per line.
        weights: file of weights for timm's model, or ``none``; None: the published ones.
        seed: of a run's network, or of random weights; None: the first trained seed, or 0.
        batch: samples in a forward pass.
        limit: number of samples.
        device: of the model.
        trust: let the config of a run name classes and functions of other packages.
    """

    source: str
    images: Path | None
    text: Path | None
    weights: str | None
    seed: int | None
    batch: int
    limit: int
    device: torch.device
    trust: bool = False


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, its inputs, and a description of the inputs.

    Args:
        model: to measure.
        batches: inputs in a form that ``diagnose`` takes.
        described: description of the inputs.
    """

    model: nn.Module
    batches: Iterable[Any]
    described: str


def image_files(request: Request) -> list[Path]:
    """Returns images of the folder, evenly spaced in the order of their names.

    Raises:
        InputError: no folder is given, or it has no images.
    """
    folder = request.images
    if folder is None:
        raise InputError(f"--images: {request.source} needs images; give a folder, --images DIR")
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGES)
    if not found:
        raise InputError(f"--images: {folder} has no images ({', '.join(IMAGES)}); give a folder")
    return evenly_spaced(found, request.limit)


def in_batches(items: Sequence, size: int) -> Iterator[Sequence]:
    """Yields the items, ``size`` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def refuse(request: Request, **given: object) -> None:
    """Raises InputError for options that this kind of source does not have."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{name}: not for {request.source}; leave it out")
