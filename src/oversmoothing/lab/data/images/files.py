"""Lists, reads and writes image and mask files; a damaged file raises an InputError."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.data.images.classes import palette


def listing(folder: Path, suffix: str) -> dict[str, str]:
    """Lists the files of a folder and of its subfolders by name, one system call per folder.

    A file in a subfolder has two names: ``subfolder/name`` and ``name``.

    Args:
        folder: may be missing; the result is then empty.
        suffix: with the dot; removed from the names.
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
    """Opens an image; PIL may decode it within the block.

    Raises:
        InputError: the file is missing, truncated or not an image.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe would never end
            raise OSError("no regular file")
        with Image.open(path) as image:
            yield image
    except InputError:
        raise
    except Exception as error:  # PIL may raise any error for a damaged file
        raise InputError(
            f"{path}: cannot be read as an image ({reason_of(error)}); expected a whole JPEG or "
            "PNG, fetch it again"
        ) from error


def read_pil(path: Path | str) -> Image.Image:
    """Decodes an image as RGB.

    Raises:
        InputError: see ``opened``; or the image has more than 8 bits per channel.
    """
    with opened(path) as image:
        if image.mode[0] in "IF":
            raise InputError(
                f"{path}: expected 8 bits per channel, got mode {image.mode}; convert the image"
            )
        return image.convert("RGB")


def read_mask(path: Path | str) -> Tensor:
    """Reads the indices of a palette image or the values of a grey one. Shapes: -> (H, W), uint8.

    Raises:
        InputError: see ``opened``; or the image has colours instead of label values.
    """
    with opened(path) as image:
        require_values(image, path)
        return torch.from_numpy(np.array(image))


def require_values(image: Image.Image, path: Path | str) -> None:
    """Raises InputError unless an image has 8-bit values that can be labels."""
    if image.mode not in ("P", "L"):
        raise InputError(
            f"{path}: expected a palette or grey image of label values, got mode "
            f"{image.mode}; convert its colours to label values"
        )


def read_size(path: Path | str) -> tuple[int, int]:
    """Reads height and width from the header; the pixels are not decoded."""
    with opened(path) as image:
        return image.height, image.width


def write_mask(path: Path, mask: np.ndarray) -> None:
    """Writes label values as a PNG with VOC's palette. Shapes: mask (H, W), uint8."""
    with_palette(mask).save(path)


def with_palette(mask: np.ndarray) -> Image.Image:
    """Makes a palette image in VOC's colours. Shapes: mask (H, W), uint8."""
    image = Image.fromarray(mask)
    image.putpalette(palette().tobytes())
    return image
