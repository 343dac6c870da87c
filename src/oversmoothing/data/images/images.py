"""Images and label images as tensors; a damaged file is named in one line."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from oversmoothing.data.images.palette import palette
from oversmoothing.errors import InputError


def listing(folder: Path, suffix: str) -> dict[str, str]:
    """Files of a folder and of the folders in it, by name: a few calls, however many files.

    A file in a subfolder goes by ``subfolder/name`` and by ``name`` alone.

    Args:
        folder: may be missing; then nothing is found.
        suffix: with the dot; left off the names.
    """
    files = {}
    if not folder.is_dir():
        return files
    for entry in os.scandir(folder):
        if entry.is_dir():
            for inner in os.scandir(entry.path):
                if inner.name.endswith(suffix):
                    stem = inner.name.removesuffix(suffix)
                    files[stem] = files[f"{entry.name}/{stem}"] = inner.path
        elif entry.name.endswith(suffix):
            files[entry.name.removesuffix(suffix)] = entry.path
    return files


@contextlib.contextmanager
def opened(path: Path | str) -> Iterator[Image.Image]:
    """An image that PIL may still decode within the block.

    Raises:
        InputError: the file is missing, truncated or no image.
    """
    try:
        with Image.open(path) as image:
            yield image
    except InputError:
        raise
    # PIL says OSError, ValueError, SyntaxError, DecompressionBombError, …, as the damage has it
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: cannot be read as an image ({why}); expected a whole JPEG or PNG, "
            "fetch it again"
        ) from error


def read_image(path: Path | str) -> Tensor:
    """Shapes: -> (3, H, W), uint8, RGB.

    Raises:
        InputError: as ``opened``.
    """
    with opened(path) as image:
        pixels = np.array(image.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def read_mask(path: Path | str) -> Tensor:
    """Indices of a palette or grey image. Shapes: -> (H, W), uint8.

    Raises:
        InputError: as ``opened``, or colours instead of indices.
    """
    with opened(path) as image:
        if image.mode not in ("P", "L"):
            raise InputError(
                f"{path}: expected a palette or grey image of label values, got mode "
                f"{image.mode}; convert its colours to label values"
            )
        return torch.from_numpy(np.array(image))


def read_size(path: Path | str) -> tuple[int, int]:
    """Height and width from the header alone."""
    with opened(path) as image:
        return image.height, image.width


def write_mask(path: Path, mask: np.ndarray) -> None:
    """Writes label values as a palette PNG in VOC's colours. Shapes: mask (H, W), uint8."""
    image = Image.fromarray(mask)
    image.putpalette(np.asarray(palette(), dtype=np.uint8).tobytes())
    image.save(path)
