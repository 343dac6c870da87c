"""Images to predict on: files, ids, and what a data set knows of them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data.augment import open_photo
from oversmoothing.lab.data.image_set import ImageSet
from oversmoothing.lab.data.scenes import load


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    return load(
        cache=str(tmp_path_factory.mktemp("scenes")), num_train=12, num_val=4, size=(48, 64)
    )


def test_an_id_has_a_label_and_a_mask_and_a_file_has_none(data: ImageSet, tmp_path: Path) -> None:
    id = data.val[0]
    known = open_photo(id, data)
    assert known.name == id and torch.equal(known.image, data.image(id))
    assert torch.equal(known.label, data.label(id)) and torch.equal(known.truth, data.mask(id))
    copy = shutil.copy(data.image_files[id], tmp_path)
    photo = open_photo(str(copy), data)
    assert photo.name == id and photo.label is None and photo.truth is None
    assert torch.equal(open_photo(str(copy), None).image, data.image(id))


def test_large_images_are_shrunk_with_their_masks(data: ImageSet) -> None:
    id = data.val[0]
    whole, small = open_photo(id, data), open_photo(id, data, longest=12)
    assert max(small.image.shape[1:]) == 12 and small.truth.shape == small.image.shape[1:]
    assert set(small.truth.unique().tolist()) <= set(whole.truth.unique().tolist())


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
