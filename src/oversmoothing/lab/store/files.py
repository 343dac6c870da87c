"""Writes files atomically, and sets damaged files aside."""

import contextlib
import glob
import hashlib
import os
import platform
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from oversmoothing.errors import InputError

OUTPUTS = "paths.outputs"  # key of the config that chooses the folder of runs


@contextlib.contextmanager
def writing(path: Path, option: str = "") -> Iterator[None]:
    """Context that converts errors of the file system to an InputError.

    Args:
        path: the file.
        option: key of the config or flag that chooses the folder; empty if there is none.

    Raises:
        InputError: the disk is full, or the file or its folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        way = f"{option}{' ' if option.startswith('-') else '='}…" if option else ""
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); free the disk or choose a "
            f"writable folder{f' with {way}' if way else ''}, then run the same command again"
        ) from error


def write_atomically(path: Path, write: Callable[[BinaryIO], object], option: str = "") -> None:
    """Writes a temporary file next to ``path``, flushes it to disk, and renames it.

    The folder is made if it is missing.

    Args:
        write: called with the open file.
        option: see ``writing``.

    Raises:
        InputError: as ``writing``. The previous content is then untouched, and no temporary file
            is left.
    """
    with writing(path, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context with the name of a temporary file or folder, which is renamed to ``path`` at the end.

    After an error it is removed. What killed processes left is removed at the beginning.
    """
    remove_temporaries(path.parent, path.name)
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        _remove(temporary)


def remove_temporaries(folder: Path, name: str = "") -> None:
    """Deletes what processes of this machine that were killed in ``replacing`` have left.

    Args:
        name: of the file that they wrote; empty: any.
    """
    for path in folder.glob(f".{glob.escape(name) or '*'}.{glob.escape(platform.node())}.*"):
        number = path.suffix[1:]
        if number.isdigit() and not _alive(int(number)):
            _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, or it is gone
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _alive(number: int) -> bool:
    """Whether another process with this number exists."""
    if number == os.getpid():
        return False
    if sys.platform == "win32":  # signal 0 is Ctrl-C there, so assume that the process exists
        return True
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # the process of another user
        return True
    return True


def flush(path: Path) -> None:
    """Flushes a file to the disk if it exists, so that a power loss cannot shorten it."""
    if path.exists():
        with writing(path, OUTPUTS), open(path, "rb+") as file:
            os.fsync(file.fileno())


def write_text(path: Path, text: str, option: str = "") -> None:
    """Writes a text in UTF-8, as ``write_atomically`` does."""
    write_atomically(path, lambda file: file.write(text.encode()), option)


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hex. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_or_set_aside(path: Path, read: Callable[[Path], Any]) -> Any | None:
    """Returns ``read(path)``; a damaged file is renamed to ``*.corrupt`` with a warning."""
    if not path.exists():
        return None
    try:
        return read(path)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); fix that first") from error
    except Exception as error:  # readers may raise any error for a damaged file
        aside = path.with_name(path.name + ".corrupt")
        with contextlib.suppress(FileNotFoundError):  # another process has renamed it
            path.replace(aside)
        reason = str(error).split("\n")[0][:80]
        warnings.warn(
            f"{path} cannot be read ({reason}); set aside as {aside.name}, redoing it", stacklevel=2
        )
        return None
