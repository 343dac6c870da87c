"""The 1,797 handwritten digits of scikit-learn (Alpaydin and Kaynak, UCI 1998); no download."""

import hashlib

import numpy as np
import torch
import torch.nn.functional as F

from oversmoothing.errors import InputError, install
from oversmoothing.lab.data.image_set import InMemory, LabelledImages, checksum

LEVELS = 16  # highest pixel value in the file
NUM_VAL = 360


def load(name: str = "digits", size: int = 32) -> LabelledImages:
    """Opens the digits, enlarged from 8×8 pixels, with three equal channels.

    The split is fixed. The 360 images whose ids have the lowest SHA-256 are for validation, the
    other 1,437 for training. The same writers occur in both parts.

    Args:
        name: of the data set.
        size: side in pixels after enlarging (bicubic).

    Raises:
        InputError: scikit-learn is not installed, or the size is below 8.
    """
    if size < 8:
        raise InputError(f"data.size: expected 8 px, the digits' own, or more, got {size}")
    pixels, targets = _bundled()
    ids = [f"digit_{i:04}" for i in range(len(pixels))]
    shuffled = sorted(ids, key=lambda id: hashlib.sha256(id.encode()).digest())
    grey = torch.from_numpy(pixels)[:, None].float() * (255 / LEVELS)
    if size > grey.shape[-1]:
        grey = F.interpolate(grey, (size, size), mode="bicubic")
    images = grey.round().clamp(0, 255).byte().expand(-1, 3, -1, -1).contiguous()
    held = InMemory(ids, images, torch.from_numpy(targets).long())
    return LabelledImages(
        name=name,
        classes=tuple(map(str, range(10))),
        train=tuple(sorted(shuffled[NUM_VAL:])),
        val=tuple(sorted(shuffled[:NUM_VAL])),
        pil_image=held.pil_image,
        target=held.target,
        checksum=checksum(hashlib.sha256(pixels.tobytes()).hexdigest(), shuffled, size),
    )


def _bundled() -> tuple[np.ndarray, np.ndarray]:
    """Reads scikit-learn's file. Shapes: -> (n, 8, 8) uint8, 0 … 16, and (n,) int64."""
    try:
        from sklearn.datasets import load_digits  # optional: nothing else needs it
    except ImportError as error:
        raise InputError(
            f"data digits: needs scikit-learn; {install('digits')}, or choose data=scene_crops"
        ) from error
    bunch = load_digits()
    return bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
