"""Images to predict on: files, ids, and what a data set knows of them."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data.augment import open_photo
from oversmoothing.lab.data.image_set import ImageSet, write_mask
from oversmoothing.lab.data.scenes import load


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    return load(
        cache=str(tmp_path_factory.mktemp("scenes")), num_train=12, num_val=4, size=(48, 64)
    )


def test_an_id_and_its_file_are_the_same_photo(data: ImageSet) -> None:
    id = data.val[0]
    for word in (id, data.image_files[id]):
        photo = open_photo(str(word), data)
        assert photo.name == id and torch.equal(photo.image, data.image(id))
        assert torch.equal(photo.label, data.label(id))
        assert torch.equal(photo.truth, data.mask(id))


def test_a_file_is_recognised_by_an_id_with_a_folder_and_without_the_files_ending(
    data: ImageSet,
) -> None:
    id = data.val[0]
    files = {f"val/{id[:-1]}": data.image_files[id]}
    masks = {f"val/{id[:-1]}": data.mask_files[id]}
    other = replace(data, image_files=files, mask_files=masks, present={})
    assert torch.equal(open_photo(str(data.image_files[id]), other).truth, data.mask(id))


def test_another_file_is_a_stranger_whatever_its_name(data: ImageSet, tmp_path: Path) -> None:
    id = data.val[0]
    copy = shutil.copy(data.image_files[id], tmp_path)
    photo = open_photo(str(copy), data)
    assert photo.name == id and photo.label is None and photo.truth is None
    assert torch.equal(open_photo(str(copy), None).image, data.image(id))


def test_large_images_are_shrunk_with_their_masks(data: ImageSet) -> None:
    id = data.val[0]
    whole, small = open_photo(id, data), open_photo(id, data, longest=12)
    assert max(small.image.shape[1:]) == 12 and small.truth.shape == small.image.shape[1:]
    assert set(small.truth.unique().tolist()) <= set(whole.truth.unique().tolist())


def test_given_masks_must_be_as_large(data: ImageSet, tmp_path: Path) -> None:
    id = data.val[0]
    width, height = Image.open(data.image_files[id]).size
    write_mask(tmp_path / f"{id}.png", np.full((height, width), 2, dtype=np.uint8))
    assert open_photo(id, data, truths=tmp_path).truth.unique().tolist() == [2]
    write_mask(tmp_path / f"{id}.png", np.zeros((height, width + 1), dtype=np.uint8))
    with pytest.raises(InputError, match=rf"{id}.png: expected a mask as large as {id}"):
        open_photo(id, data, truths=tmp_path)


def test_a_photo_on_its_side_is_put_upright_and_16_bits_are_refused(tmp_path: Path) -> None:
    pixels = np.zeros((20, 40, 3), dtype=np.uint8)
    pixels[:, :20] = 255  # white on the left of the file: at the top of the photo
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "side.jpg", exif=exif)
    image = open_photo(str(tmp_path / "side.jpg"), None).image
    assert image.shape == (3, 40, 20) and image[:, :15].min() > 200 and image[:, 25:].max() < 55
    Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InputError, match="deep.png: expected 8 bits per channel, got mode I;16"):
        open_photo(str(tmp_path / "deep.png"), None)
