"""Images in one folder per class, ImageNet's layout: train/<class>/…, val/<class>/…"""

import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import LabelledImages, OnError, checksum, read_pil

SUFFIXES = (".jpeg", ".jpg", ".png")  # upper or lower case
PARTS = ("train", "val")


def load(
    root: str = "data",
    folder: str = "ImageNet",
    name: str = "imagenet",
    classes: str | None = None,
    on_error: OnError = "stop",
) -> LabelledImages:
    """Opens a data set with one folder per class; lists the images without reading them.

    Classes are sorted by the names of their folders, as ImageNet's are. Ids are paths relative to
    ``root/folder``.

    Args:
        root: folder with the data; nothing is written to it.
        folder: subfolder that holds ``train`` and ``val``.
        name: of the data set.
        classes: file in ``root/folder`` that selects classes (ImageNet-100); each line begins with
            the name of a class folder. null: all folders of ``train``.
        on_error: at a damaged training image: stop, or skip it with a warning.

    Raises:
        InputError: a folder or the list does not exist, a class has no images, or a class of
            ``val`` or of the list is not in ``train``.
    """
    base = Path(root) / folder
    found = {part: _folders(base / part) for part in PARTS}
    chosen = _listed(base / classes, base, found["train"]) if classes else _every(base, **found)
    ids = {part: _images(base, part, chosen) for part in PARTS}
    files = _Files(base, chosen)
    return LabelledImages(
        name=name,
        classes=chosen,
        train=ids["train"],
        val=ids["val"],
        pil_image=files.pil_image,
        target=files.target,
        checksum=checksum(chosen, ids["train"], ids["val"]),
        on_error=on_error,
    )


def _every(base: Path, train: set[str], val: set[str]) -> tuple[str, ...]:
    """All classes of ``train``, sorted; raises InputError if ``val`` has others."""
    if unknown := sorted(val - train):
        raise InputError(
            f"{base / 'val'}: {len(unknown)} classes are missing in train (first {unknown[0]}); "
            "remove these folders, or list the classes to use in a file, data.classes"
        )
    return tuple(sorted(train))


class _Files:
    """Reads an id's file, and its class from the folder in the id."""

    def __init__(self, base: Path, classes: Sequence[str]) -> None:
        self.base = str(base)
        self.numbers = {name: k for k, name in enumerate(classes)}

    def pil_image(self, id: str) -> Image.Image:
        return read_pil(f"{self.base}/{id}")

    def target(self, id: str) -> int:
        return self.numbers[id.split("/")[1]]


def _folders(part: Path) -> set[str]:
    layout = f"expected {part.name}/<class>/*.JPEG"
    try:
        found = {entry.name for entry in os.scandir(part) if entry.is_dir()}
    except OSError as error:
        raise InputError(
            f"{part}: cannot be listed ({error.strerror}); {layout}: set paths.data to the folder "
            f"that holds {part.parent.name}, or data.folder"
        ) from error
    if not found:
        raise InputError(
            f"{part}: holds no class folders; {layout}: ImageNet's validation images come "
            "unsorted, move each into the folder of its class"
        )
    return found


def _listed(path: Path, base: Path, known: set[str]) -> tuple[str, ...]:
    """Reads the classes of a list; sorts them."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"data.classes: {path} cannot be read ({getattr(error, 'strerror', 'no text')}); "
            "expected lines that begin with the name of a class folder"
        ) from error
    names = [line.split()[0] for line in lines if line.strip()]
    if not names or len(set(names)) < len(names):
        double = next((name for name in names if names.count(name) > 1), None)
        what = f"names {double} twice" if double else "names no class"
        raise InputError(f"{path}: {what}; expected a different class folder in each line")
    if unknown := [name for name in names if name not in known]:
        raise InputError(
            f"{path}: {len(unknown)} of {len(names)} classes have no folder in {base / 'train'} "
            f"(first {unknown[0]}); correct the list, or fetch these classes"
        )
    return tuple(sorted(names))


def _images(base: Path, part: str, classes: Sequence[str]) -> tuple[str, ...]:
    """Lists the ids of a part, sorted."""
    ids: list[str] = []
    for name in classes:
        place = base / part / name
        names = os.listdir(place) if place.is_dir() else []
        files = sorted(file for file in names if file.lower().endswith(SUFFIXES))
        if not files:
            raise InputError(
                f"{base / part}: class {name} has no image in {place}; fetch its images, or list "
                "the other classes in a file, data.classes"
            )
        ids += [f"{part}/{name}/{file}" for file in files]
    return tuple(ids)
