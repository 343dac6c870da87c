"""Reads torch-geometric's data sets from verified raw files; processed files are in the cache."""

import importlib.metadata
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from filelock import FileLock

from oversmoothing.errors import InputError
from oversmoothing.lab.data.unpickle import restricted

if TYPE_CHECKING:  # importing torch-geometric takes seconds
    from torch_geometric.data import Data, InMemoryDataset


def read(dataset: Callable[..., "InMemoryDataset"], raw: Path, inner: str, cache: Path) -> "Data":
    """Opens a data set of torch-geometric.

    torch-geometric writes ``processed`` next to ``raw``, which fails if the data are read-only. So
    it gets a tree in ``cache`` whose ``raw`` is a link. Only one process at a time works there.

    Args:
        dataset: builds the data set from ``root``.
        raw: folder with the raw files, already verified.
        inner: folder below the root in which torch-geometric looks for ``raw``.
        cache: a folder of this data set alone; it is created if missing.

    Raises:
        InputError: the cache cannot be written, or a raw file would run code.
    """
    root = cache / f"pyg-{version()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):
            _link(root / inner / "raw", raw.resolve())
            _drop_bad(root / inner / "processed")
            with restricted():
                return dataset(root=str(root))[0]
    except OSError as error:
        raise InputError(
            f"{root}: cannot be written ({error.strerror or error}); "
            "choose another folder with paths.cache=…"
        ) from error
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{raw}: a raw file is not an array, list or dict ({error}), so it is not read; "
            "delete the folder to download it again"
        ) from error


def version() -> str:
    """Returns the version of torch-geometric; each version has its own processed files."""
    return importlib.metadata.version("torch-geometric")


def _link(link: Path, target: Path) -> None:
    """Makes ``link`` a symbolic link to ``target``; replaces a link to another place."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink() and os.readlink(link) != str(target):
        link.unlink()
    if not link.is_symlink():
        link.symlink_to(target)


def _drop_bad(processed: Path) -> None:
    """Removes processed files that torch-geometric cannot read, so that it writes them anew."""
    # Notes on transforms are not needed, and torch-geometric unpickles them without restriction.
    for note in processed.glob("pre_*.pt"):
        note.unlink()
    path = processed / "data.pt"
    if not path.exists():
        return
    try:
        # If this fails, torch-geometric would fall back to an unrestricted load.
        torch.load(path, weights_only=True)
    except Exception:  # a damaged archive may raise any error
        warnings.warn(f"{path}: unreadable; it is deleted and written anew", stacklevel=2)
        path.unlink()
