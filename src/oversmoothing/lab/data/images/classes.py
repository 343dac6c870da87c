"""Names and colours of the classes, in the order of their label values."""

from collections.abc import Sequence
from functools import cache
from importlib import resources

import numpy as np
import yaml

from oversmoothing.errors import InputError
from oversmoothing.metrics.segmentation import IGNORE


@cache
def class_names(kind: str) -> tuple[str, ...]:
    """The K names of ``voc`` (20), ``coco`` (80), ``context`` (59) or ``coco_stuff`` (171)."""
    text = (
        resources.files("oversmoothing.lab.data.images").joinpath("classes.yaml").read_text("utf-8")
    )
    parts = yaml.safe_load(text)[kind]  # names, or lists of them
    names = [[part] if isinstance(part, str) else part for part in parts]
    return tuple(name for part in names for name in part)


def checked_names(classes: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of a known list, or the given names.

    Raises:
        InputError: too many names, or a duplicate.
    """
    names = class_names(classes) if isinstance(classes, str) else tuple(classes)
    if not 1 <= len(names) < IGNORE or len(set(names)) < len(names):
        raise InputError(
            f"data.classes: expected 1 to {IGNORE - 1} different names, got {len(names)}, "
            f"{len(set(names))} of them different"
        )
    return names


def palette() -> np.ndarray:
    """The colours in which PASCAL VOC stores its masks.

    Bit 3j + c of a label is bit 7 − j of colour channel c (VOC development kit): 0 is black, 1 is
    (128, 0, 0), 255 is (224, 224, 192).

    Shapes: -> uint8 (256, 3).
    """
    labels = np.arange(256)[:, None]
    channel = np.arange(3)
    bits = (((labels >> (3 * j + channel)) & 1) << (7 - j) for j in range(3))
    return sum(bits).astype(np.uint8)
