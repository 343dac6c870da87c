"""torch-geometric's data sets over verified raw files, with its processed files kept elsewhere."""

import importlib.metadata
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from filelock import FileLock

from oversmoothing.data.unpickle import restricted
from oversmoothing.errors import InputError

if TYPE_CHECKING:  # importing torch-geometric takes seconds: only where a graph is read
    from torch_geometric.data import Data, InMemoryDataset


def read(dataset: Callable[..., "InMemoryDataset"], raw: Path, inner: str, cache: Path) -> "Data":
    """Opens a data set of torch-geometric.

    torch-geometric writes ``processed`` beside ``raw``, which fails where the data are read-only;
    so it is given a tree in ``cache`` whose ``raw`` is a link. One process at a time works there.

    Args:
        dataset: builds the data set from ``root``.
        raw: folder with the raw files, verified before.
        inner: the folder under its root in which torch-geometric looks for ``raw``.
        cache: a folder of this data set alone; made if need be.

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
            f"{raw}: a raw file is no array, list or dict ({error}), so it is not read; "
            "delete the folder to download it again"
        ) from error


def version() -> str:
    """The installed version of torch-geometric; each writes processed files of its own."""
    return importlib.metadata.version("torch-geometric")


def _link(link: Path, target: Path) -> None:
    """Makes ``link`` a symbolic link to ``target``; one to another place is replaced."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink() and os.readlink(link) != str(target):
        link.unlink()
    if not link.is_symlink():
        link.symlink_to(target)


def _drop_bad(processed: Path) -> None:
    """Throws away what torch-geometric would stumble over, so that it makes it again."""
    # Notes on transforms, of which there are none; torch-geometric unpickles them unrestricted.
    for note in processed.glob("pre_*.pt"):
        note.unlink()
    path = processed / "data.pt"
    if not path.exists():
        return
    try:
        # Also keeps torch-geometric from its fallback to an unrestricted load.
        torch.load(path, weights_only=True)
    except Exception:  # a damaged archive raises errors of many types
        warnings.warn(f"{path}: unreadable, thrown away and made again", stacklevel=2)
        path.unlink()
