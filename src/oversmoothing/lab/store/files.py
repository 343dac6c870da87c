"""Files: whole or not at all, damaged ones set aside, checksums, and the package's own folders."""

import contextlib
import csv
import gzip
import hashlib
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from oversmoothing.errors import InputError

OUTPUTS = "paths.outputs"  # key of the config that chooses the folder of runs
FORBIDDEN = "OVERSMOOTHING_OFFLINE=1 forbids downloads"

_PACKAGE = Path(__file__).parents[2]
_ABOVE = Path(__file__).parents[4]
CHECKOUT = _ABOVE if (_ABOVE / "pyproject.toml").is_file() else None  # None in a wheel
CONFIGS = (CHECKOUT or _PACKAGE) / "configs"


def results() -> Path:
    """Returns the folder of committed results.

    Raises:
        InputError: the package runs from a wheel, which has none.
    """
    if CHECKOUT is None:
        raise InputError(
            f"results: {_PACKAGE} is an installed wheel, which has no results/; clone the "
            "repository, and run `pip install -e '.[repro]'` in it"
        )
    return CHECKOUT / "results"


def offline() -> bool:
    """Whether the environment variable ``OVERSMOOTHING_OFFLINE`` is 1, which forbids downloads."""
    return os.environ.get("OVERSMOOTHING_OFFLINE") == "1"


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


def require_writable(folder: Path, option: str = "") -> None:
    """Raises InputError if a folder, or the one it would be made in, cannot be written."""
    places = (folder, *folder.absolute().parents)
    there = next(path for path in places if os.path.exists(path))  # never raises
    with writing(folder, option), tempfile.TemporaryDirectory(dir=there):
        pass


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


def write_text(path: Path, text: str, option: str = "") -> None:
    """Writes a text in UTF-8, as ``write_atomically`` does."""
    write_atomically(path, lambda file: file.write(text.encode()), option)


@contextlib.contextmanager
def alone(path: Path, option: str = "") -> Iterator[None]:
    """Context that one process at a time enters, to read files of a folder and write them anew.

    Args:
        path: of a file in the folder, which is made if it is missing.
        option: see ``writing``.

    Raises:
        InputError: the folder cannot be written.
    """
    lock = FileLock(path.with_name(".lock"))
    with writing(path, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        held = lock.acquire()
    with held:
        yield


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context with the name of a temporary file or folder, which is renamed to ``path`` at the end.

    After an error it is removed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is gone
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def read_csv(path: Path) -> list[dict[str, str]]:
    """Returns the lines of a table by the names of its columns; its name may end in ``.gz``."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def short_sha256(content: bytes) -> str:
    """The first twelve hex digits of the SHA-256, which identify data in results and file names."""
    return hashlib.sha256(content).hexdigest()[:12]


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hex. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_or_set_aside(path: Path, read: Callable[[Path], Any]) -> Any | None:
    """Returns ``read(path)``; a damaged file is renamed to ``*.corrupt`` with a warning."""
    if not os.path.exists(path):  # Path.exists() raises for very long names
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
