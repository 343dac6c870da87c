"""Images in a folder for each class: the images, their order, and errors."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data import folders

CLASSES = ["n03", "n01", "n02"]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Three classes; image j of class k has the colour 10·k + j."""
    base = tmp_path / "ImageNet"
    for part, count in {"train": 3, "val": 2}.items():
        for k, name in enumerate(CLASSES):
            place = base / part / name
            place.mkdir(parents=True)
            for j in range(count):
                pixels = np.full((4, 6, 3), 10 * k + j, dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"im{j}.JPEG")
            (place / "._im0.JPEG").write_text("left by macOS")
        (base / part / ".ipynb_checkpoints").mkdir()
    return base


def load(base: Path, **options: object):
    return folders.load_classes(str(base.parent), **options)


def test_classes_are_sorted_and_every_image_has_that_of_its_folder(base: Path) -> None:
    data = load(base)
    assert data.classes == ("n01", "n02", "n03")
    assert len(data.train) == 9 and len(data.val) == 6
    for id in (*data.train, *data.val):
        k = CLASSES.index(data.classes[data.target(id)])
        assert data.image(id).shape == (3, 4, 6)
        assert (data.image(id)[0, 0, 0] // 10) == k


def test_what_is_no_image_is_left_out(base: Path) -> None:
    before = load(base).train
    (base / "train/n02/more").mkdir()
    (base / "val/n01/notes.txt").write_text("no image")
    Image.new("RGB", (4, 6)).save(base / "train/n02/im3.WebP")
    assert {*load(base).train} - {*before} == {"train/n02/im3.WebP"}


def test_a_list_chooses_classes_in_the_order_of_their_folders(base: Path) -> None:
    (base / "some.txt").write_text("\ufeffn03 tench, Tinca tinca\n\nn01\n")
    data, whole = load(base, classes="some.txt"), load(base)
    assert data.classes == ("n01", "n03")
    assert {data.target(id) for id in data.val} == {0, 1}
    assert data.checksum != whole.checksum == load(base).checksum


def renamed(base: Path, old: str, new: str) -> None:
    (base / old).rename(base / new)


def emptied(base: Path) -> None:
    for path in (base / "train/n02").glob("*.JPEG"):
        path.unlink()


BROKEN = {  # what is named -> what breaks it, and the content of a list of classes
    "val: cannot be listed": (lambda base: renamed(base, "val", "test"), None),
    "val: holds no class folders": (
        lambda base: renamed(base, "val", "test") or (base / "val").mkdir(),
        None,
    ),
    "class n02 has no image in": (emptied, None),
    "val: 1 classes are missing in train (first n04)": (
        lambda base: (base / "val/n04").mkdir(),
        None,
    ),
    "val: class n02 has no image": (lambda base: renamed(base, "val/n02", "elsewhere"), None),
    "some.txt: 1 of 2 classes have no folder": (lambda base: None, "n01\nn07\n"),
    "some.txt: names n01 twice": (lambda base: None, "n01\nn02\nn01\n"),
    "some.txt: names no class": (lambda base: None, "\n"),
}


@pytest.mark.parametrize("named", BROKEN)
def test_what_is_wrong_is_said_at_once(base: Path, named: str) -> None:
    break_it, listed = BROKEN[named]
    break_it(base)
    if listed is not None:
        (base / "some.txt").write_text(listed)
    with pytest.raises(InputError) as caught:
        load(base, classes=None if listed is None else "some.txt")
    assert named in str(caught.value)
