"""Data sets in VOC's layout: their contents, and one line for each kind of error."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from voc_folder import load, make, truncate, write_list

from oversmoothing.errors import InputError
from oversmoothing.lab.data import voc
from oversmoothing.lab.data.image_set import write_mask


@pytest.fixture
def base(tmp_path):
    return make(tmp_path)


def refused(base, *parts: str, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        load(base, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message


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
    path = base / "SegmentationClassAug/im0.png"
    path.unlink()
    write_mask(path, np.full((20, 30), 9, dtype=np.uint8))
    assert len({first, second, load(base).checksum}) == 3


def test_a_missing_folder_or_list_is_named(base, tmp_path):
    refused(base, "expected VOC2007 or VOCdevkit/VOC2007", "fetch_data.py voc", folder="VOC2007")
    refused(
        base, "trainaug.txt", "No such file", "lists there are: train_aug, val", train="trainaug"
    )
    write_list(base, "val", [])
    refused(base, "val.txt", "the list is empty")


def test_ids_without_image_or_mask_are_counted_and_named(base):
    write_list(base, "train_aug", ["im0", "a", "b", "c", "d"])
    refused(base, "train_aug.txt: 4 of 5 images (a, b, c, …) are not in", "JPEGImages as *.jpg")
    write_list(base, "train_aug", ["im0"])
    (base / "SegmentationClassAug/im7.png").unlink()
    refused(base, "val.txt: 1 of 2 images (im7)", "SegmentationClassAug as *.png")


@pytest.mark.parametrize(("val", "said"), [(["im0", "im7"], 1), (["im0", "im1"], 0), (["im7"], 0)])
def test_validation_images_that_are_trained_on(base, val, said, recwarn):
    """All of them are a choice, such as CAMs of the training images; some are a mistake."""
    write_list(base, "val", val)
    load(base)
    assert ["data.val" in str(warning.message) for warning in recwarn] == [True] * said


def test_an_image_without_any_class_is_named(base):
    path = base / "SegmentationClassAug/im3.png"
    path.unlink()
    write_mask(path, np.zeros((20, 30), dtype=np.uint8))
    refused(base, "train_aug.txt: 1 of 6 images (im3) have no image-level label")


def test_without_masks_there_is_something_to_predict_only(base):
    (base / "labels.json").write_text('{"im0": ["cat"]}')
    write_list(base, "train_aug", ["im0"])
    data = load(base, masks=None, labels="labels.json")
    assert data.image("im7").shape == (3, 20, 30) and data.label("im0").argmax() == 7
    for ask in (data.mask, data.label):
        with pytest.raises(InputError, match="im7 has no"):
            ask("im7")
    refused(base, "data.labels", masks=None)


def test_a_part_of_the_training_images_is_evenly_spaced(base):
    part = load(base, num_train=3)
    assert part.train == ("im0", "im2", "im4") and part.val == load(base).val
    assert part.checksum != load(base).checksum == load(base, num_train=6).checksum
    for wrong in (0, 7):
        refused(base, "data.num_train", "expected 1 to 6", f"got {wrong}", num_train=wrong)


def test_a_damaged_image_is_named(base):
    data = load(base)
    path = base / "JPEGImages/im0.jpg"
    truncate(path)
    with pytest.raises(InputError, match=f"{path}: cannot be read as an image .*truncated"):
        data.image("im0")
    path.write_bytes(b"no image")
    with pytest.raises(InputError, match=f"{path}: cannot be read as an image"):
        data.image("im0")
    path.unlink()
    with pytest.raises(InputError, match="No such file"):
        data.image("im0")


def test_a_mask_of_another_size_other_values_or_in_colours_is_named(base):
    data = load(base)
    path = base / "SegmentationClassAug/im0.png"
    write_mask(path, np.zeros((30, 20), dtype=np.uint8))
    with pytest.raises(InputError, match=f"{path}: 30 x 20 pixels, but its image has 20 x 30"):
        data.mask("im0")
    with pytest.raises(InputError, match=f"{path}: 30 x 20 pixels"):
        data.require_sizes(["im0"])  # from the headers, before a training
    write_mask(path, np.full((20, 30), 21, dtype=np.uint8))
    with pytest.raises(InputError, match=r"im0.png: label values \[21\], expected 0 to 20 or 255"):
        data.mask("im0")
    Image.new("RGB", (30, 20)).save(path)
    with pytest.raises(InputError, match="im0.png: expected a palette or grey image"):
        data.mask("im0")
    shutil.rmtree(base.parent / "cache")
    refused(base, "im0.png: expected a palette or grey image")


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
