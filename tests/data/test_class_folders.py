"""Images in a folder for each class: the images, their order, and errors."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data import class_folders

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
            (place / "notes.txt").write_text("no image")
    return base


def load(base: Path, **options: object):
    return class_folders.load(str(base.parent), **options)


def test_classes_are_sorted_and_every_image_has_that_of_its_folder(base: Path) -> None:
    data = load(base)
    assert data.classes == ("n01", "n02", "n03")
    assert len(data.train) == 9 and len(data.val) == 6
    for id in (*data.train, *data.val):
        k = CLASSES.index(data.classes[data.target(id)])
        assert data.image(id).shape == (3, 4, 6)
        assert (data.image(id)[0, 0, 0] // 10) == k


def test_a_list_chooses_classes_in_the_order_of_their_folders(base: Path) -> None:
    (base / "some.txt").write_text("n03 tench, Tinca tinca\n\nn01\n")
    data, whole = load(base, classes="some.txt"), load(base)
    assert data.classes == ("n01", "n03")
    assert {data.target(id) for id in data.val} == {0, 1}
    assert data.checksum != whole.checksum == load(base).checksum


def test_it_travels_to_workers(base: Path) -> None:
    data = load(base)
    there = pickle.loads(pickle.dumps(data))
    id = data.val[-1]
    assert torch.equal(there.image(id), data.image(id)) and there.target(id) == data.target(id)


def no_part(base: Path) -> dict:
    (base / "val").rename(base / "test")
    return {}


def unsorted_val(base: Path) -> dict:
    (base / "val").rename(base / "test")
    (base / "val").mkdir()
    (base / "val" / "im0.JPEG").touch()
    return {}


def no_image(base: Path) -> dict:
    for path in (base / "train" / "n02").glob("*.JPEG"):
        path.unlink()
    return {}


def stranger(base: Path) -> dict:
    (base / "val" / "n04").mkdir()
    return {}


def not_validated(base: Path) -> dict:
    (base / "val" / "n02").rename(base / "elsewhere")
    return {}


def unknown_in_list(base: Path) -> dict:
    (base / "some.txt").write_text("n01\nn07\n")
    return {"classes": "some.txt"}


def double_in_list(base: Path) -> dict:
    (base / "some.txt").write_text("n01\nn02\nn01\n")
    return {"classes": "some.txt"}


@pytest.mark.parametrize(
    "broken, said",
    [
        (no_part, r"ImageNet/val: cannot be listed .*expected val/<class>.*paths\.data"),
        (unsorted_val, r"ImageNet/val: holds no class folders.*move each"),
        (no_image, r"train: class n02 has no image in .*train/n02"),
        (stranger, r"val: 1 classes are missing in train \(first n04\)"),
        (not_validated, r"val: class n02 has no image"),
        (unknown_in_list, r"some\.txt: 1 of 2 classes have no folder .*\(first n07\)"),
        (double_in_list, r"some\.txt: names n01 twice"),
        (lambda base: {"classes": "none.txt"}, r"data\.classes: .*none\.txt cannot be read"),
    ],
)
def test_what_is_wrong_is_said_at_once(base: Path, broken, said: str) -> None:
    options = broken(base)
    with pytest.raises(InputError, match=said):
        load(base, **options)


def test_a_damaged_image_is_named(base: Path) -> None:
    path = base / "train" / "n01" / "im1.JPEG"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=r"n01/im1\.JPEG: cannot be read as an image"):
        load(base).image("train/n01/im1.JPEG")
