"""Data sets in VOC's layout and in folders with masks: contents, labels, and what is refused."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from voc_folder import load, make, truncate, write_list

from oversmoothing.errors import InputError
from oversmoothing.lab.data import folders, voc
from oversmoothing.lab.data.image_set import ImageSet, class_names, read_mask, write_mask


@pytest.fixture
def base(tmp_path):
    return make(tmp_path)


def refused(call: Callable, *named: str, **options: object) -> None:
    with pytest.raises(InputError) as caught:
        call(**options)
    assert "\n" not in str(caught.value) and all(part in str(caught.value) for part in named)


def overwrite(base: Path, id: str, values: np.ndarray) -> None:
    path = base / f"SegmentationClassAug/{id}.png"
    path.unlink()
    write_mask(path, values)


def test_images_masks_and_labels_belong_together(base):
    data = load(base)
    assert data.train == tuple(f"im{i}" for i in range(6)) and data.val == ("im6", "im7")
    for id in data.train + data.val:
        image, mask, label = data.image(id), data.mask(id), data.label(id)
        assert image.shape == (3, 20, 30) and image.dtype == torch.uint8
        assert mask.shape == (20, 30) and mask.dtype == torch.uint8
        present = set(mask.unique().tolist()) - {0, 255}
        assert set((label.nonzero()[:, 0] + 1).tolist()) == present
        assert label.shape == (20,) and label.sum() == len(present) == 2


def test_vocs_own_archive_layout_is_found(base, tmp_path):
    expected = load(base).checksum
    base.rename(base.parent / "moved")
    (tmp_path / "VOCdevkit").mkdir()
    (base.parent / "moved").rename(tmp_path / "VOCdevkit/VOC2012")
    assert voc.load(str(tmp_path), cache=str(tmp_path / "cache")).checksum == expected
    (tmp_path / "VOC2012").mkdir()
    (tmp_path / "VOCdevkit").rename(tmp_path / "VOC2012/VOCdevkit")
    assert voc.load(str(tmp_path), cache=str(tmp_path / "cache")).checksum == expected


def test_images_may_lie_in_subfolders(base):
    for folder, suffix in (("JPEGImages", "jpg"), ("SegmentationClassAug", "png")):
        (base / folder / "train2014").mkdir()
        (base / folder / f"im0.{suffix}").rename(base / folder / f"train2014/im0.{suffix}")
        (base / folder / f"im1.{suffix}").rename(base / folder / f"train2014/im1.{suffix}")
    write_list(base, "train_aug", ["train2014/im0", "im1", "im2"])
    data = load(base)
    assert data.image("train2014/im0").shape == (3, 20, 30)
    assert data.mask("im1").max() == 255 and data.label("train2014/im0")[0] == 1


def test_the_checksum_sees_lists_and_labels(base):
    first = load(base).checksum
    assert first == load(base).checksum
    write_list(base, "val", ["im7", "im6"])
    second = load(base).checksum
    overwrite(base, "im0", np.full((20, 30), 9, dtype=np.uint8))
    assert len({first, second, load(base).checksum}) == 3


@pytest.mark.parametrize(("val", "said"), [(["im0", "im7"], 1), (["im0", "im1"], 0), (["im7"], 0)])
def test_validation_images_that_are_trained_on(base, val, said, recwarn):
    """All of them are a choice, such as CAMs of the training images; some are a mistake."""
    write_list(base, "val", val)
    load(base)
    assert ["data.val" in str(warning.message) for warning in recwarn] == [True] * said


def test_without_masks_there_is_something_to_predict_only(base):
    (base / "labels.json").write_text('{"im0": ["cat"]}')
    write_list(base, "train_aug", ["im0"])
    data = load(base, masks=None, labels="labels.json")
    assert data.image("im7").shape == (3, 20, 30) and data.label("im0").argmax() == 7
    for ask in (data.mask, data.label):
        with pytest.raises(InputError, match="im7 has no"):
            ask("im7")


def test_a_part_of_the_training_images_is_evenly_spaced(base):
    part = load(base, num_train=3)
    assert part.train == ("im0", "im2", "im4") and part.val == load(base).val
    assert part.checksum != load(base).checksum == load(base, num_train=6).checksum


def test_damaged_images_and_wrong_masks_are_named_when_they_are_read(base):
    data = load(base)
    image, mask = base / "JPEGImages/im0.jpg", base / "SegmentationClassAug/im0.png"
    truncate(image)
    refused(lambda: data.image("im0"), f"{image}: cannot be read as an image", "truncated")
    image.unlink()
    refused(lambda: data.image("im0"), "No such file")
    shutil.copy(base / "JPEGImages/im1.jpg", image)
    write_mask(mask, np.zeros((30, 20), dtype=np.uint8))
    refused(lambda: data.mask("im0"), f"{mask}: 30 x 20 pixels, but its image has 20 x 30")
    refused(lambda: data.require_sizes(["im0"]), f"{mask}: 30 x 20 pixels")  # from the headers
    write_mask(mask, np.full((20, 30), 21, dtype=np.uint8))
    refused(lambda: data.mask("im0"), "im0.png: label values [21], expected 0 to 20 or 255")
    Image.new("RGB", (30, 20)).save(mask)
    refused(lambda: data.mask("im0"), "im0.png: expected a palette or grey image")
    shutil.rmtree(base.parent / "cache")
    refused(lambda: load(base), "im0.png: expected a palette or grey image")


def test_the_real_subset(data_root, tmp_path):
    options = {"train": "train_subset", "val": "val_subset", "cache": str(tmp_path)}
    data = voc.load(str(data_root), **options)
    assert (len(data.train), len(data.val)) == (1036, 445)
    assert not set(data.train) & set(data.val)
    counts = torch.stack([data.label(id) for id in data.train]).sum(0)
    assert dict(zip(data.classes, counts.tolist()))["cat"] == 280
    assert data.label(data.train[0]).nonzero()[:, 0].tolist() == [8, 11]  # chair and dog
    for id in data.val[:20]:
        assert data.mask(id).shape == data.image(id).shape[1:]


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


def test_a_list_holds_names_or_values(base):
    content = {f"im{i}": ["dog", "cat"] if i % 2 else [12, 8] for i in range(8)}
    (base / "labels.json").write_text(json.dumps(content))
    data = load(base, labels="labels.json")
    assert set(data.present.values()) == {(8, 12)}
    absolute = load(base, labels=str(base / "labels.json"))
    assert absolute.checksum == data.checksum


def without(path: str) -> Callable[[Path], None]:
    return lambda base: (base / path).unlink()


def listed(part: str, *ids: str) -> Callable[[Path], None]:
    return lambda base: write_list(base, part, [*ids])


def labelled(content: str) -> Callable[[Path], None]:
    return lambda base: (base / "labels.json").write_text(content)


def nothing(base: Path) -> None:
    pass


EMPTY = np.zeros((20, 30), dtype=np.uint8)
FILE = {"labels": "labels.json"}
BROKEN: list[tuple[str, Callable[[Path], object], dict]] = [  # what is named, what breaks, options
    ("VOCdevkit/VOC2007", nothing, {"folder": "VOC2007"}),
    ("trainaug.txt", nothing, {"train": "trainaug"}),
    ("val.txt: the list is empty", listed("val"), {}),
    ("train_aug.txt: 4 of 5 images (a, b, c, …)", listed("train_aug", "im0", *"abcd"), {}),
    ("val.txt: 1 of 2 images (im7)", without("SegmentationClassAug/im7.png"), {}),
    ("train_aug.txt: 1 of 6 images (im3)", lambda base: overwrite(base, "im3", EMPTY), {}),
    (
        "train_aug.txt: 1 of 6 images (im3)",
        without("SegmentationClassAug/im3.png"),
        {"labels": None},
    ),
    ("data.labels", nothing, {"masks": None}),
    ("data.labels", nothing, {"masks": None, "labels": None}),
    ("data.labels", nothing, {"labels": "mask"}),
    ("data.num_train", nothing, {"num_train": 0}),
    ("data.num_train", nothing, {"num_train": 7}),
    ("labels.json: cannot be read as JSON", labelled("{"), FILE),
    ("'unicorn'", labelled('{"im0": ["unicorn"]}'), FILE),
    ("values 1 to 20, got 0", labelled('{"im0": [0]}'), FILE),
    ("values 1 to 20, got 21", labelled('{"im0": [21]}'), FILE),
    ("labels.json", labelled('["im0"]'), FILE),
    ("5 of 6 images", labelled('{"im0": ["cat"]}'), FILE),
]


@pytest.mark.parametrize(("named", "breaks", "options"), BROKEN)
def test_what_is_broken_is_named_at_once(base: Path, named: str, breaks, options: dict) -> None:
    breaks(base)
    refused(lambda: load(base, **options), named)


SIZE = (12, 16)


def write(base: Path, images: str, masks: str, id: str, suffix: str, *found: int) -> None:
    for path in (base / images / f"{id}.jpg", base / masks / f"{id}{suffix}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    mask = np.full(SIZE, 255, dtype=np.uint8)
    mask[0, : len(found)] = found
    Image.new("RGB", SIZE[::-1], (9, 9, 9)).save(base / images / f"{id}.jpg")
    Image.fromarray(mask).save(base / masks / f"{id}{suffix}")


@pytest.fixture
def context(tmp_path: Path) -> Path:
    base = tmp_path / "VOCdevkit" / "VOC2010"
    for id in ("a", "b", "c"):
        write(base, "JPEGImages", "SegmentationClassContext", id, ".png", 0, 1, 59)
    lists = base / "ImageSets/SegmentationContext"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\nb\n")
    (lists / "val.txt").write_text("c\n")
    return base


@pytest.fixture
def stuff(tmp_path: Path) -> Path:
    base = tmp_path / "coco_stuff10k"
    for part, stems in (("train2014", "ba"), ("test2014", "c")):
        for stem in stems:
            id = f"{part}/{stem}"
            write(base, "images", "annotations", id, "_labelTrainIds.png", 0, 1, 171)
    return base


def load_stuff(base: Path, **options: object) -> ImageSet:
    own = {"folder": base.name, "name": "coco_stuff", "images": "images", "masks": "annotations"}
    own |= {"mask_suffix": "_labelTrainIds.png", "lists": None, "train": "train2014"}
    own |= {"val": "test2014", "classes": "coco_stuff", "zero": "ignored"}
    return folders.load_masks(str(base.parent), **own | options)


def load_context(base: Path, **options: object) -> ImageSet:
    return folders.load_masks(str(base.parents[1]), **options)


def test_context_has_sixty_labels_or_fifty_nine(context):
    data = load_context(context)
    assert (data.train, data.val) == (("a", "b"), ("c",))
    assert len(data.classes) == 59 and len(data.label_names) == 60 and data.background
    assert data.mask("a")[0, :4].tolist() == [0, 1, 59, 255]
    assert data.label_names[1] == "aeroplane" and data.label_names[59] == "wood"
    few = load_context(context, zero="ignored")
    assert few.label_names == data.classes and not few.background
    assert few.mask("a")[0, :4].tolist() == [255, 0, 58, 255]
    assert few.checksum != data.checksum == load_context(context).checksum


def test_coco_stuff_is_found_in_subfolders_without_lists(stuff):
    data = load_stuff(stuff)
    assert (data.train, data.val) == (("train2014/a", "train2014/b"), ("test2014/c",))
    assert len(data.label_names) == 171 and data.label_names[79:81] == ("toothbrush", "banner")
    assert data.mask("train2014/a")[0, :4].tolist() == [255, 0, 170, 255]
    assert data.image("test2014/c").shape == (3, *SIZE)
    (stuff / "imagesLists").mkdir()
    for part, ids in (("train", "b\n"), ("test", "c\n")):
        (stuff / "imagesLists" / f"{part}.txt").write_text(ids)
    listed = load_stuff(stuff, lists="imagesLists", train="train", val="test")
    assert listed.train == ("b",) and torch.equal(listed.mask("c"), data.mask("test2014/c"))


def test_folders_that_do_not_fit_are_refused(context, stuff):
    refused(
        lambda: load_context(context, classes="voc"), "c.png: label values [59]", "data.classes"
    )
    refused(lambda: load_context(context, classes=["x", "x"]), "data.classes")
    refused(lambda: load_context(context, classes=[]), "data.classes")
    refused(lambda: load_context(context, folder="VOC2011"), "VOCdevkit/VOC2011")
    refused(lambda: load_context(context, train="trainval"), "trainval.txt")
    refused(lambda: load_stuff(stuff, train="train2017"), "images/train2017: holds no *.jpg")
    refused(lambda: load_stuff(stuff, mask_suffix=".png"), "train2014: 2 of 2 images")
    (context / "SegmentationClassContext/b.png").unlink()
    refused(lambda: load_context(context), "train.txt: 1 of 2 images (b)")


def test_vocs_masks_serve_without_labels_and_are_not_read(base):
    folder = base / "SegmentationClassAug"
    Image.new("RGB", (30, 20)).save(folder / "im0.png")  # a reader would refuse it
    data = load(base, labels=None)
    assert not data.present and data.label_names == ("background", *class_names("voc"))
    data.require_masks("train", "val")
    assert torch.equal(data.mask("im1"), read_mask(folder / "im1.png"))


def test_images_without_mask_are_counted_before_training(base):
    (base / "labels.json").write_text('{"im0": ["cat"]}')
    (base / "SegmentationClassAug/im0.png").unlink()
    write_list(base, "train_aug", ["im0"])
    data = load(base, labels="labels.json")
    data.require_masks("val")
    refused(
        lambda: data.require_masks("val", "train"), "1 of 1 train images have no mask (first im0)"
    )
