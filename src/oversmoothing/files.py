"""Files that are whole or not there."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from oversmoothing.errors import InputError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the disk says into one line.

    Raises:
        InputError: the disk is full, or the file or its folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); free the disk or choose a "
            "writable folder with paths.outputs=…, then run the same command again"
        ) from error


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file beside its place, flushes it to disk, and renames it into place.

    Raises:
        InputError: as ``writing``; what stood there before is untouched, and no half-written file
            is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
