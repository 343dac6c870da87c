"""The augmentation: position of the image in the crop, invariants, and random draws."""

import pytest
import torch
import torchvision.transforms.v2.functional as F
from PIL import Image

from oversmoothing.lab.data.augment import Augment
from oversmoothing.lab.data.image_set import to_pil

PLAIN = {"jitter_p": 0, "grey": 0, "blur": 0}
SIZES = [(40, 50), (20, 90), (90, 20), (7, 5), (64, 64)]


def image(height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)


def is_image(box: torch.Tensor, side: int) -> torch.Tensor:
    inside = torch.zeros(side, side, dtype=torch.bool)
    inside[box[0] : box[1], box[2] : box[3]] = True
    return inside


@pytest.mark.parametrize("size", SIZES)
def test_the_box_is_exactly_the_image(size):
    torch.manual_seed(0)
    white, augment = torch.full((3, *size), 255, dtype=torch.uint8), Augment(64, **PLAIN)
    for _ in range(50):
        crop, box = augment(to_pil(white))
        assert crop.shape == (3, 64, 64) and crop.dtype == torch.uint8
        assert box.shape == (4,) and box.dtype == torch.int64
        assert torch.equal(crop == 255, is_image(box, 64).expand(3, -1, -1))
        assert crop.max() == 255 and ((crop == 0) | (crop == 255)).all()


def test_a_certain_flip_mirrors():
    original = image(30, 30)
    crop, _ = Augment(30, scale=[1, 1], flip=1, **PLAIN)(to_pil(original))
    assert torch.equal(crop, original.flip(2))


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.3, 2.0])
def test_a_part_is_scaled_as_the_whole_would_be(factor):
    """Only what the crop shows is computed; the reference scales everything, then cuts."""
    torch.manual_seed(0)
    original, side = image(60, 80), 24
    crop, _ = Augment(side, scale=[factor, factor], flip=0, **PLAIN)(to_pil(original))
    whole = to_pil(original).resize((int(80 * factor), int(60 * factor)), Image.Resampling.BILINEAR)
    windows = F.pil_to_tensor(whole).unfold(1, side, 1).unfold(2, side, 1)  # (3, y, x, S, S)
    gap = (windows.int() - crop.int()[:, None, None]).abs().amax((0, 3, 4))
    assert gap.min() <= 2  # Pillow rounds after each of its two passes


def test_offsets_cover_all_places_evenly():
    torch.manual_seed(0)
    augment = Augment(8, scale=[1, 1], **PLAIN)
    rows = torch.stack([augment(to_pil(image(5, 8)))[1][0] for _ in range(2000)])
    counts = rows.bincount(minlength=4)
    assert counts.shape == (4,) and (counts > 400).all()


def test_grey_has_one_channel_and_blur_less_contrast():
    original = to_pil(image(32, 32))
    base = {"crop": 32, "scale": [1, 1], "jitter_p": 0}
    grey, _ = Augment(**base, grey=1, blur=0)(original)
    assert torch.equal(grey[0], grey[1]) and torch.equal(grey[0], grey[2])
    sharp, _ = Augment(**base, grey=0, blur=0)(original)
    blurred, _ = Augment(**base, grey=0, blur=1)(original)
    assert blurred.float().std() < sharp.float().std()


def test_everything_comes_from_torchs_generator():
    augment, original = Augment(32), to_pil(image(40, 30))
    torch.manual_seed(3)
    first = augment(original)
    second = augment(original)
    torch.manual_seed(3)
    again = augment(original)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], second[0])
