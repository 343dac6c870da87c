"""VOC and SBD from their archives; made-up ones behind file:// addresses."""

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from voc_folder import write_image

from oversmoothing.lab.data import voc, voc_archives
from oversmoothing.lab.data.fetch import Source
from oversmoothing.lab.data.image_set import read_mask, write_mask

LISTS = {"train": ["a", "b"], "val": ["c"]}
SBD = ["b", "c", "d", "e"]  # also knows one training and one validation image


def pack(path: Path, mode: str, files: dict[str, bytes]) -> None:
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def mask_of(value: int) -> np.ndarray:
    mask = np.zeros((20, 30), dtype=np.uint8)
    mask[:5] = value
    return mask


@pytest.fixture
def archives(tmp_path) -> list[Source]:
    mirror, scratch, inner = tmp_path / "mirror", tmp_path / "scratch", "VOCdevkit/VOC2012"
    mirror.mkdir(), scratch.mkdir()
    files = {f"{inner}/SegmentationObject/a.png": b"not wanted"}
    for i, id in enumerate("abcde"):
        write_image(scratch / "image.jpg", i)
        files[f"{inner}/JPEGImages/{id}.jpg"] = (scratch / "image.jpg").read_bytes()
    for part, ids in LISTS.items():
        files[f"{inner}/ImageSets/Segmentation/{part}.txt"] = "\n".join(ids).encode()
        for id in ids:
            write_mask(scratch / "mask.png", mask_of(1))
            files[f"{inner}/SegmentationClass/{id}.png"] = (scratch / "mask.png").read_bytes()
    pack(mirror / "voc.tar", "w", files)
    sbd = {"benchmark_RELEASE/dataset/inst/d.mat": b"not wanted"}
    for id in SBD:
        file = io.BytesIO()
        savemat(file, {"GTcls": {"Segmentation": mask_of(2)}})
        sbd[f"benchmark_RELEASE/dataset/cls/{id}.mat"] = file.getvalue()
    pack(mirror / "sbd.tgz", "w:gz", sbd)
    return [
        Source([mirror.as_uri()], {name: hashlib.sha256((mirror / name).read_bytes()).hexdigest()})
        for name in ("voc.tar", "sbd.tgz")
    ]


def test_both_archives_become_one_data_set(tmp_path, archives):
    root = tmp_path / "data"
    said = voc_archives.prepare(root, archives)
    base = root / "VOCdevkit/VOC2012"
    assert said == f"4 train_aug, 1 val images with masks under {base}"
    data = voc.load(str(root), cache=str(tmp_path / "cache"))
    assert data.train == ("a", "b", "d", "e") and data.val == ("c",)
    values = {id: int(data.mask(id).max()) for id in data.train + data.val}
    assert values == {"a": 1, "b": 1, "c": 1, "d": 2, "e": 2}  # VOC's masks are preferred
    assert not (base / "SegmentationObject").exists()
    assert Image.open(base / "SegmentationClassAug/d.png").mode == "P"
    assert {path.name for path in root.iterdir()} == {"archives", "VOCdevkit"}  # nothing left over
    assert np.array_equal(read_mask(base / "SegmentationClassAug/d.png"), mask_of(2))


def test_a_complete_set_needs_no_archives(tmp_path, archives):
    said = voc_archives.prepare(tmp_path / "data", archives)
    assert voc_archives.prepare(tmp_path / "data", []) == said


def test_an_interrupted_call_is_made_good(tmp_path, archives):
    root = tmp_path / "data"
    said = voc_archives.prepare(root, archives)
    base = root / "VOCdevkit/VOC2012"
    (base / "ImageSets/Segmentation/train_aug.txt").unlink()
    (base / "SegmentationClassAug/d.png").unlink()
    assert voc_archives.prepare(root, archives) == said


def test_the_published_sources_have_checksums():
    sources = [*voc_archives.sources()]
    assert sources and all(source.files for source in sources)
    for source in sources:
        assert len(source.urls) >= 2 and source.urls[0].startswith("https://")
        assert all(len(sha) == 64 for sha in source.files.values())
