"""The image lists of a data set in VOC's layout; checks that every listed file exists."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.lab.data.images.files import listing

LISTS = "ImageSets/Segmentation"
FETCH = "get VOC 2012 with python scripts/fetch_data.py voc"


def find_base(root: Path, folder: str, way_out: str = FETCH) -> Path:
    """Finds ``root/folder``, or ``VOCdevkit/folder``, as in VOC's archive, in ``root`` or there.

    Args:
        way_out: the alternative to setting ``paths.data``, for the error message.

    Raises:
        InputError: neither folder exists.
    """
    inner = Path("VOCdevkit", folder)  # the archive may have been unpacked in its own folder
    for base in (root / folder / inner, root / folder, root / inner):
        if base.is_dir():
            return base
    raise InputError(
        f"{root}: expected {folder} or VOCdevkit/{folder} in it; set paths.data=…, or {way_out}"
    )


def list_path(base: Path, part: str, lists: str = LISTS) -> Path:
    """Path of a list."""
    return base / lists / f"{part}.txt"


def read_list(base: Path, part: str, lists: str = LISTS) -> tuple[str, ...]:
    """Reads the ids in ``base/lists/part.txt``, one per line.

    Raises:
        InputError: the list is missing or empty.
    """
    path = list_path(base, part, lists)
    try:
        ids = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(listing(path.parent, ".txt"))) or "none"
        raise InputError(
            f"{path}: the list cannot be read ({getattr(error, 'strerror', error)}); lists there "
            f"are: {known}"
        ) from error
    if not ids:
        raise InputError(f"{path}: the list is empty; expected one image id per line")
    return ids


def require_files(
    lists: Mapping[Path, Sequence[str]], folder: Path, suffix: str, other_masks: str = ""
) -> dict[str, str]:
    """Finds the files of a folder by id.

    Args:
        lists: path of a list -> its ids; each must have a file.
        folder: of the files.
        suffix: of the files.
        other_masks: a folder next to it, which the message names if all files are there.

    Raises:
        InputError: an id without a file.
    """
    files = listing(folder, suffix)
    for path, ids in lists.items():
        if missing := [id for id in ids if id not in files]:
            _require_ids(path, missing[0])
            there = other_masks and listing(folder.parent / other_masks, suffix).keys() >= {*ids}
            raise InputError(
                f"{path}: {_some(missing, ids)} are not in {folder} as *{suffix}; put them there, "
                + (f"set data.masks={other_masks}, " if there else "")
                + "or choose other lists with data.train and data.val"
            )
    return files


def _require_ids(path: Path, line: str) -> None:
    """Raises InputError if a line of a list holds files, as in lists of pairs, and not an id."""
    first = Path(line.split()[0])
    if first.suffix in (".jpg", ".jpeg", ".png") or line.startswith("/"):
        raise InputError(
            f"{path}: expected one image id per line, such as {first.stem}, got {line!r}; keep "
            "only the name of the image, without folder and ending"
        )


def warn_of_shared(train: Sequence[str], val: Sequence[str]) -> None:
    """Warns if some validation images, but not all, are training images."""
    if 0 < (shared := len({*train} & {*val})) < len({*val}):
        warnings.warn(
            f"data.val: {shared} of {len(val)} images are in the list of data.train as well, so "
            "they are not new to the network; remove them from one of the lists",
            stacklevel=3,
        )


def require_labels(path: Path, ids: Sequence[str], present: Mapping[str, Collection[int]]) -> None:
    """Raises InputError if an image of a list has no class, since classifiers need at least one."""
    if bare := [id for id in ids if not present.get(id)]:
        raise InputError(
            f"{path}: {_some(bare, ids)} have no image-level label; remove them from the list or "
            "check data.labels"
        )


def _some(wrong: Sequence[str], ids: Sequence[str]) -> str:
    dots = ", …" if len(wrong) > 3 else ""
    return f"{len(wrong)} of {len(ids)} images ({', '.join(wrong[:3])}{dots})"
