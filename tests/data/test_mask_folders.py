"""Data sets to learn from masks: what label values mean, and one line for each way to be broken."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from voc_folder import load as load_voc
from voc_folder import make

from oversmoothing.errors import InputError
from oversmoothing.lab.data import folders
from oversmoothing.lab.data.image_set import ImageSet, class_names, read_mask

SIZE = (12, 16)


def write(base: Path, images: str, masks: str, id: str, suffix: str, mask: np.ndarray) -> None:
    for path in (base / images / f"{id}.jpg", base / masks / f"{id}{suffix}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE[::-1], (9, 9, 9)).save(base / images / f"{id}.jpg")
    Image.fromarray(mask).save(base / masks / f"{id}{suffix}")


def values(*found: int) -> np.ndarray:
    mask = np.full(SIZE, 255, dtype=np.uint8)
    mask[0, : len(found)] = found
    return mask


@pytest.fixture
def context(tmp_path: Path) -> Path:
    base = tmp_path / "VOCdevkit" / "VOC2010"
    for id in ("a", "b", "c"):
        write(base, "JPEGImages", "SegmentationClassContext", id, ".png", values(0, 1, 59))
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
            mask = values(0, 1, 171)
            write(base, "images", "annotations", f"{part}/{stem}", "_labelTrainIds.png", mask)
    return base


def load_stuff(base: Path, **options: object) -> ImageSet:
    defaults = {
        "root": str(base.parent),
        "folder": base.name,
        "name": "coco_stuff",
        "images": "images",
        "masks": "annotations",
        "mask_suffix": "_labelTrainIds.png",
        "lists": None,
        "train": "train2014",
        "val": "test2014",
        "classes": "coco_stuff",
        "zero": "ignored",
    }
    return folders.load_masks(**(defaults | options))


def load_context(base: Path, **options: object) -> ImageSet:
    return folders.load_masks(str(base.parents[1]), **options)


def refused(call, *args: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


def test_a_label_keeps_its_name_whatever_zero_is(context):
    """Classes are counted anew without background; what a pixel shows stays."""
    with_background, without = load_context(context), load_context(context, zero="ignored")
    for a, b in zip(with_background.mask("a")[0], without.mask("a")[0]):
        if 0 < a < 255:
            assert with_background.label_names[a] == without.label_names[b]


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


def test_zero_may_be_the_first_class(stuff):
    path = stuff / "annotations/train2014/a_labelTrainIds.png"
    said = refused(load_stuff, stuff, zero="class")  # 171 in the file of val
    assert "test2014/c_labelTrainIds.png: label values [171], expected 0 to 170 or 255" in said
    Image.fromarray(values(0, 170)).save(stuff / "annotations/test2014/c_labelTrainIds.png")
    data = load_stuff(stuff, zero="class")
    assert data.mask("test2014/c")[0, :3].tolist() == [0, 170, 255]
    with pytest.raises(InputError, match=rf"{path}: label values \[171\].*data\.classes"):
        data.mask("train2014/a")


def test_class_names_that_do_not_fit_the_masks_are_refused(context):
    said = refused(load_context, context, classes="voc")
    assert "SegmentationClassContext/c.png: label values [59], expected 0 to 20 or 255" in said
    assert "data.classes" in said
    assert "got 2, 1 of them different" in refused(load_context, context, classes=["x", "x"])
    assert "expected 1 to 254" in refused(load_context, context, classes=[])
    own = load_context(context, classes=[f"kind {i}" for i in range(59)])
    assert own.label_names[2] == "kind 1"


def test_what_is_missing_is_named(context, stuff):
    folder = context / "SegmentationClassContext"
    (folder / "b.png").unlink()
    said = refused(load_context, context)
    assert f"train.txt: 1 of 2 images (b) are not in {folder} as *.png" in said
    assert "VOC2011 or VOCdevkit/VOC2011" in refused(load_context, context, folder="VOC2011")
    assert "lists there are: train, val" in refused(load_context, context, train="trainval")
    said = refused(load_stuff, stuff, train="train2017")
    assert f"{stuff}/images/train2017: holds no *.jpg; set data.train" in said
    said = refused(load_stuff, stuff, mask_suffix=".png")
    assert "train2014: 2 of 2 images (train2014/a, train2014/b) are not in" in said


def test_vocs_masks_serve_without_labels_and_are_not_read(tmp_path):
    base = make(tmp_path)
    folder = base / "SegmentationClassAug"
    Image.new("RGB", (30, 20)).save(folder / "im0.png")  # a reader would refuse it
    data = load_voc(base, labels=None)
    assert data.train == load_voc(base, labels=None).train and not data.present
    data.require_masks("train", "val")
    assert torch.equal(data.mask("im1"), read_mask(folder / "im1.png"))
    assert data.label_names == ("background", *class_names("voc"))
    (folder / "im3.png").unlink()
    assert "train_aug.txt: 1 of 6 images (im3) are not in" in refused(load_voc, base, labels=None)
    assert "data.labels: null" in refused(load_voc, base, labels=None, masks=None)


def test_images_without_mask_are_counted_before_training(tmp_path):
    base = make(tmp_path)
    (base / "labels.json").write_text('{"im0": ["cat"]}')
    (base / "SegmentationClassAug/im0.png").unlink()
    (base / "ImageSets/Segmentation/train_aug.txt").write_text("im0\n")
    data = load_voc(base, labels="labels.json")
    data.require_masks("val")
    said = refused(data.require_masks, "val", "train")
    assert "1 of 1 train images have no mask (first im0); check data.masks" in said


def test_the_real_subset_without_labels(data_root, tmp_path):
    options = {"folder": "VOC2012", "masks": "SegmentationClassAug", "classes": "voc"}
    lists = {"lists": "ImageSets/Segmentation", "train": "train_subset", "val": "val_subset"}
    data = folders.load_masks(str(data_root), **options, **lists)
    assert (len(data.train), len(data.val)) == (1036, 445)
    assert not list(tmp_path.iterdir()) and data.mask(data.train[0]).unique().tolist()[0] == 0
