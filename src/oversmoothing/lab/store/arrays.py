"""Reads archives of numpy arrays, without objects and with bounded memory."""

import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

LARGEST = 2**30  # bytes of the arrays of a small compressed file


def load(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Reads arrays of a ``.npz`` file by name.

    Raises:
        ValueError: the file is missing or damaged, lacks an array, or unpacks to far more bytes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > max(LARGEST, 2 * path.stat().st_size):
            raise ValueError(f"it unpacks to {unpacked:,} bytes")
        with np.load(path) as arrays:
            return {name: arrays[name] for name in names}
    except (Exception, MemoryError) as error:  # readers may raise any error for a damaged file
        raise ValueError(f"{type(error).__name__}: {error}") from error
