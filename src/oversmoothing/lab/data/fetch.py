"""Checks raw files and downloads missing ones.

No raw file is opened before its SHA-256 has matched the one in ``raw_files.yaml``.
"""

import http.client
import shutil
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import yaml

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.files import FORBIDDEN, offline, replacing, sha256, short_sha256

TIMEOUT = 30  # seconds without data before the next mirror is tried


@dataclass(frozen=True)
class Source:
    """The files of one folder, and where to download them.

    Args:
        urls: folders on the web; tried in this order.
        files: file name -> SHA-256 in hex.
    """

    urls: Sequence[str]
    files: Mapping[str, str]


@cache
def catalogue() -> dict[str, list[Source]]:
    """Reads which files every folder under ``<root>/graphs`` must hold."""
    text = resources.files("oversmoothing.lab.data").joinpath("raw_files.yaml").read_text("utf-8")
    folders = yaml.safe_load(text)["folders"]
    return {folder: [Source(**source) for source in parts] for folder, parts in folders.items()}


def checksum(sources: Sequence[Source]) -> str:
    """Hashes the checksums of all files to twelve hex digits."""
    lines = sorted(f"{name} {sha}" for source in sources for name, sha in source.files.items())
    return short_sha256("\n".join(lines).encode())


def ensure(sources: Sequence[Source], folder: Path) -> None:
    """Makes sure that a folder holds every file with the right content.

    An existing file is checked and never replaced. A missing one is downloaded from the first
    mirror that works, and is renamed into place after its checksum has matched. With the
    environment variable ``OVERSMOOTHING_OFFLINE=1`` nothing is downloaded.

    Raises:
        InputError: a file is altered, truncated or unreadable, or is missing and cannot be
            downloaded; the message says which file to put where, and its address.
    """
    missing = list(_missing(sources, folder))
    if missing and offline():
        raise InputError(_by_hand(missing, folder, FORBIDDEN))
    for done, (name, source) in enumerate(missing):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _download(name, source, folder)
        except OSError as error:
            raise InputError(_by_hand(missing[done:], folder, reason_of(error))) from error


def _missing(sources: Sequence[Source], folder: Path) -> Iterator[tuple[str, Source]]:
    """Yields name and source of every missing file; verifies the existing ones."""
    for source in sources:
        for name, expected in source.files.items():
            path = folder / name
            if not path.exists():
                yield name, source
                continue
            try:
                got = sha256(path)
            except OSError as error:
                why = reason_of(error)
                raise InputError(f"{path}: cannot be read ({why}); make it readable") from error
            if got != expected:
                raise InputError(
                    f"{path}: altered or truncated: expected checksum {expected[:12]}, "
                    f"got {got[:12]}; delete the file to download it again"
                )


def _download(name: str, source: Source, folder: Path) -> None:
    """Downloads one file; raises OSError if no mirror has it or the folder is not writable."""
    failures = []
    with replacing(folder / name) as temporary:
        for url in source.urls:
            try:
                asked = urllib.request.urlopen(f"{url}/{name}", timeout=TIMEOUT)
                with asked as answer, temporary.open("wb") as file:
                    shutil.copyfileobj(answer, file)
            except (OSError, http.client.HTTPException) as error:
                failures.append(reason_of(error))
                continue
            if sha256(temporary) == source.files[name]:
                return
            failures.append("other content")
        reasons = ", ".join(dict.fromkeys(failures))
        raise OSError(f"none of {len(source.urls)} mirrors gave {name}: {reasons}")


def _by_hand(missing: Sequence[tuple[str, Source]], folder: Path, reason: str) -> str:
    sources = {id(source): source for _, source in missing}.values()
    parts = [
        f"{', '.join(name for name, own in missing if own is source)} from {source.urls[0]}/"
        for source in sources
    ]
    return (
        f"{folder}: missing files ({reason}); put there: {'; '.join(parts)}; or set DATA_ROOT to "
        "the folder of your data"
    )
