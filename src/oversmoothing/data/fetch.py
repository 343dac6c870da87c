"""Raw files: there and right, or downloaded, or one line on where to put them.

Nothing opens a raw file before its SHA-256 matched the one in ``raw_files.yaml``.
"""

import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import yaml

from oversmoothing.errors import InputError

TIMEOUT = 30  # seconds without a byte before the next mirror is tried


@dataclass(frozen=True)
class Source:
    """Files that lie side by side.

    Args:
        urls: folders on the web, in the order in which they are tried.
        files: file name -> SHA-256 in hex.
    """

    urls: Sequence[str]
    files: Mapping[str, str]


@cache
def catalogue() -> dict[str, list[Source]]:
    """What every folder under ``<root>/graphs`` must hold."""
    text = resources.files("oversmoothing.data").joinpath("raw_files.yaml").read_text()
    folders = yaml.safe_load(text)["folders"]
    return {folder: [Source(**source) for source in parts] for folder, parts in folders.items()}


def checksum(sources: Sequence[Source]) -> str:
    """Twelve hex digits that name the content of all files."""
    lines = sorted(f"{name} {sha}" for source in sources for name, sha in source.files.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def ensure(sources: Sequence[Source], folder: Path) -> None:
    """Makes sure that a folder holds every file with the right content.

    A file that is there is checked and never replaced. One that is missing is downloaded, mirror
    after mirror, and takes its place only after its checksum matched. With the environment variable
    ``OVERSMOOTHING_OFFLINE=1`` the network is not touched.

    Raises:
        InputError: a file is altered or truncated, cannot be read, or is missing and cannot be had;
            says which file belongs where, and from which address.
    """
    missing = list(_missing(sources, folder))
    if not missing:
        return
    if os.environ.get("OVERSMOOTHING_OFFLINE") == "1":
        raise InputError(_by_hand(missing, folder, "OVERSMOOTHING_OFFLINE=1 forbids downloads"))
    for done, (name, source) in enumerate(missing):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _download(name, source, folder)
        except OSError as error:
            raise InputError(_by_hand(missing[done:], folder, _one_line(error))) from error


def _missing(sources: Sequence[Source], folder: Path) -> Iterator[tuple[str, Source]]:
    """Name and source of every file that is not there; those that are there are verified."""
    for source in sources:
        for name, expected in source.files.items():
            path = folder / name
            if not path.exists():
                yield name, source
            elif (got := _sha256(path)) != expected:
                raise InputError(
                    f"{path}: altered or truncated: expected checksum {expected[:12]}, "
                    f"got {got[:12]}; delete the file to download it again"
                )


def _download(name: str, source: Source, folder: Path) -> None:
    """Downloads one file into place; OSError when no mirror has it or the folder is read-only."""
    failures = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{name}.", delete=False) as file:
        temporary = Path(file.name)
    try:
        for url in source.urls:
            try:
                _copy(f"{url}/{name}", temporary)
            except (OSError, http.client.HTTPException) as error:
                failures.append(_one_line(error))
                continue
            if _sha256(temporary) == source.files[name]:
                temporary.chmod(0o644)
                os.replace(temporary, folder / name)
                return
            failures.append("other content")
    finally:
        temporary.unlink(missing_ok=True)
    reasons = ", ".join(dict.fromkeys(failures))
    raise OSError(f"none of {len(source.urls)} mirrors gave {name}: {reasons}")


def _copy(url: str, path: Path) -> None:
    """Downloads with urllib's defaults, which verify certificates."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, path.open("wb") as file:
        shutil.copyfileobj(answer, file)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({_one_line(error)}); make it readable"
        ) from error


def _by_hand(missing: Sequence[tuple[str, Source]], folder: Path, reason: str) -> str:
    sources = {id(source): source for _, source in missing}.values()
    parts = [
        f"{', '.join(name for name, own in missing if own is source)} from {source.urls[0]}/"
        for source in sources
    ]
    return f"{folder}: missing files ({reason}); put there: {'; '.join(parts)}"


def _one_line(error: Exception) -> str:
    cause = getattr(error, "reason", error)  # URLError keeps what happened there
    return " ".join(str(getattr(cause, "strerror", None) or cause).split())
