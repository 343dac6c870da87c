"""Files: whole or not at all, damaged ones set aside, checksums, and the package's own folders."""

import contextlib
import csv
import glob
import gzip
import hashlib
import os
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from oversmoothing.errors import InputError, reason_of

OUTPUTS = "paths.outputs"  # key of the config that chooses the folder of runs
FORBIDDEN = "OVERSMOOTHING_OFFLINE=1 forbids downloads"
RESTORE = "restore it with git, or remove it if git does not have it"
DAY = 24 * 60 * 60  # seconds; no file takes so long to write

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

    After an error it is removed. Temporaries of this path that are older than a day are removed at
    the beginning; killed processes have left them.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError):  # another process has removed it
            if time.time() - left.stat().st_mtime > DAY:
                _remove(left)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is gone
        shutil.rmtree(path) if path.is_dir() else path.unlink()


class Line(dict[str, str]):
    """A line of a table by the names of its columns; a column that is missing raises InputError."""

    def __init__(self, path: Path, cells: Iterable[tuple[str, str]]) -> None:
        super().__init__(cells)
        self.path = path

    def __missing__(self, name: str) -> str:
        raise InputError(f"{self.path}: is damaged (no column {name!r}); {RESTORE}")


def read_csv(path: Path) -> list[Line]:
    """Returns the lines of a table; its name may end in ``.gz``.

    Raises:
        InputError: the file is damaged, or a line has more or fewer columns than the first.
        OSError: there is no such file, or it cannot be opened.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        try:
            rows = [row for row in csv.reader(file, strict=True) if row]
            if len({*map(len, rows)}) != 1:
                raise ValueError("it is empty, or lines have more or fewer columns than the first")
        except (ValueError, EOFError, gzip.BadGzipFile, csv.Error) as error:
            raise InputError(f"{path}: is damaged ({reason_of(error)}); {RESTORE}") from None
    return [Line(path, zip(rows[0], row)) for row in rows[1:]]


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
