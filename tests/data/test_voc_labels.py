"""Image-level labels from masks, boxes and lists; pickled lists are converted without running."""

import json
import os
import pickle
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from malicious import Malicious
from PIL import Image
from voc_folder import load, make

from oversmoothing.errors import InputError
from oversmoothing.lab.data import voc
from oversmoothing.lab.data.voc import read_onehot

BOX = "<object><name>{}</name><difficult>{}</difficult></object>"


@pytest.fixture
def base(tmp_path):
    return make(tmp_path)


def write_boxes(base: Path, id: str, boxes: list[tuple[str, int]]) -> None:
    text = "".join(BOX.format(*box) for box in boxes)
    (base / f"Annotations/{id}.xml").write_text(f"<annotation>{text}</annotation>")


def test_labels_from_masks_are_read_once(base, monkeypatch):
    first = load(base).present
    assert first["im0"] == (1, 20) and first["im5"] == (6, 20)
    monkeypatch.setattr(voc, "opened", None)  # from now on nothing can be read
    assert load(base).present == first


def test_a_mask_that_is_overwritten_in_place_is_read_again(base):
    """PIL writes into the file itself, so its folder has no new time."""
    assert load(base).present["im0"] == (1, 20)
    path = base / "SegmentationClassAug/im0.png"
    folder = path.parent.stat()
    image = Image.open(path).copy()
    image.putdata([7] * (image.width * image.height))
    image.save(path)
    os.utime(path.parent, ns=(folder.st_atime_ns, folder.st_mtime_ns))
    assert load(base).present["im0"] == (7,)


def test_a_damaged_cache_is_made_again(base):
    first = load(base).present
    [path] = (base.parent / "cache/labels").iterdir()
    for content in ("", "[]", '{"im0": [3]}'):
        path.write_text(content)
        assert load(base).present == first


def test_boxes_count_difficult_objects_too(base):
    for i in range(8):
        write_boxes(base, f"im{i}", [("cat", 0), ("cat", 0), ("person", 1)])
    assert load(base, labels="xml").present["im0"] == (8, 15)
    write_boxes(base, "im1", [("unicorn", 0)])
    (base / "Annotations/im9.xml").touch()  # a new file: the folder is read again
    with pytest.raises(InputError, match=r"im1\.xml: unknown class 'unicorn'"):
        load(base, labels="xml")
    (base / "Annotations/im1.xml").write_text("<annotation>")
    with pytest.raises(InputError, match=r"im1\.xml: cannot be read"):
        load(base, labels="xml")
    (base / "Annotations/im1.xml").unlink()
    with pytest.raises(InputError, match=r"1 of 6 images \(im1\) have no image-level label"):
        load(base, labels="xml")


def test_a_list_holds_names_or_values(base):
    content = {f"im{i}": ["dog", "cat"] if i % 2 else [12, 8] for i in range(8)}
    (base / "labels.json").write_text(json.dumps(content))
    data = load(base, labels="labels.json")
    assert set(data.present.values()) == {(8, 12)}
    absolute = load(base, labels=str(base / "labels.json"))
    assert absolute.checksum == data.checksum


@pytest.mark.parametrize(
    "content, said",
    [
        ("{", "cannot be read as JSON"),
        ('{"im0": ["unicorn"]}', "got 'unicorn'"),
        ('{"im0": [0]}', "values 1 to 20, got 0"),
        ('{"im0": [21]}', "values 1 to 20, got 21"),
        ('["im0"]', "expected image id -> list"),
        ('{"im0": ["cat"]}', "5 of 6 images"),
    ],
)
def test_a_bad_list_is_named(base, content, said):
    (base / "labels.json").write_text(content)
    with pytest.raises(InputError) as caught:
        load(base, labels="labels.json")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def save(path: Path, content: object) -> Path:
    np.save(path, np.array(content, dtype=object), allow_pickle=True)
    return path


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    path = save(tmp_path / "labels.npy", {"im0": Malicious(tmp_path / "ran")})
    with pytest.raises(InputError, match=r"labels\.npy: more than arrays and dicts"):
        read_onehot(path)
    header, pickled = path.read_bytes()[:128], b"c_codecs\nencode\n(Vx\nVzip\ntR."
    path.write_bytes(header + pickled)
    with pytest.raises(InputError, match="it names the codec 'zip'"):
        read_onehot(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content", [b"", b"nothing", pickle.dumps({"im0": np.zeros(20)}), b"\x93NUMPY\x01\x00"]
)
def test_what_is_no_such_file_is_named(tmp_path, content):
    (tmp_path / "labels.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"labels\.npy: expected a \.npy file"):
        read_onehot(tmp_path / "labels.npy")


def test_vectors_of_another_length_are_refused(tmp_path):
    path = save(tmp_path / "labels.npy", {"im0": np.ones(20), "im1": np.ones(7)})
    with pytest.raises(InputError, match=r"labels\.npy: .*a vector of 7, not of 20 or 80"):
        read_onehot(path)


def run_script(monkeypatch, *words: object) -> int:
    script = Path(__file__).parents[2] / "scripts" / "convert_labels.py"
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(script), run_name="__main__")
    return caught.value.code


def test_the_real_list_agrees_with_the_masks(data_root, tmp_path, monkeypatch, capsys):
    out = tmp_path / "labels.json"
    real = data_root / "VOC2012/cls_labels_onehot.npy"
    assert run_script(monkeypatch, real, "--out", out) == 0
    assert "labels of 12031 images" in capsys.readouterr().out
    options = {"train": "train_subset", "val": "val_subset", "cache": str(tmp_path)}
    listed = voc.load(str(data_root), labels=str(out), **options).present
    seen = voc.load(str(data_root), **options).present
    # Boxes without a pixel of their own in the mask are in the list only; never the other way.
    assert all(set(seen[id]) <= set(listed[id]) for id in seen)
    assert sum(seen[id] == listed[id] for id in seen) == 1355  # of 1,481
