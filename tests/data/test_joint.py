"""Image and mask stay together under every scale, crop and flip."""

import pytest
import torch
import torch.nn.functional as F
from voc_folder import load, make, truncate

from oversmoothing.errors import InputError
from oversmoothing.lab.data.augment import MEAN, JointAugment, masked_crop
from oversmoothing.lab.data.loading import train_batches

FILL = torch.tensor(MEAN).view(3, 1, 1)


def ramps(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Red counts columns, green rows, blue is white; the mask is 7·(row mod 16) + column mod 7."""
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    red, green = columns.expand(height, -1), rows.expand(-1, width)
    image = torch.stack([red, green, torch.full_like(red, 255)])
    return image.byte(), label(red, green).byte()


def label(column: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return 7 * (row % 16) + column % 7


def noise(height: int, width: int, labels: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(height)
    image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)
    return image, torch.randint(0, labels, (height, width), generator=generator).byte()


def seen(image: torch.Tensor) -> torch.Tensor:
    """Where a crop of ``ramps`` shows the image: there, blue is 1."""
    return image[2] > 0.999


@pytest.mark.parametrize("size", [(40, 90), (90, 40), (200, 210), (20, 25)])
def test_the_mask_belongs_to_the_colour_at_every_pixel(size):
    """A linear ramp stays one under linear interpolation, so that the colour tells the place."""
    torch.manual_seed(0)
    image, mask = ramps(*size)
    augment = JointAugment(64, scales=[0.4, 2.3], discrete=False)
    compared = shown = 0
    for _ in range(60):
        crop, labels = augment(image, mask)
        inside = seen(crop)
        assert torch.equal(labels != 255, inside)
        place = crop[:2] * 255
        clear = inside & ((place % 1 - 0.5).abs() > 1e-3).all(0)  # not half-way between pixels
        column, row = place.round().long()
        assert torch.equal(labels[clear], label(column, row)[clear])
        compared, shown = compared + int(clear.sum()), shown + int(inside.sum())
    assert compared > 0.9 * shown


@pytest.mark.parametrize("factor", [0.5, 0.75, 1.0, 1.3, 2.0])
def test_a_part_is_scaled_as_the_whole_would_be(factor):
    """Against torch's own interpolation of the whole image, cut at all places."""
    image, mask = noise(60, 80)
    crop, _ = JointAugment(24, scales=[factor], flip=0)(image, mask)
    size = int(60 * factor), int(80 * factor)
    whole = F.interpolate(image[None].double() / 255, size, mode="bilinear", align_corners=True)[0]
    windows = whole.unfold(1, 24, 1).unfold(2, 24, 1)  # (3, y, x, S, S)
    gap = (windows - crop[:, None, None]).abs().amax((0, 3, 4))
    assert gap.min() < 1e-6


def test_the_unscaled_image_is_kept_at_the_top_left_of_its_padding():
    image, mask = noise(20, 30)
    crop, labels = JointAugment(40, scales=[1.0], flip=0)(image, mask)
    assert torch.equal((crop[:, :20, :30] * 255).round().byte(), image)
    assert torch.equal(labels[:20, :30], mask.long())
    outside = labels == 255
    assert outside.sum() == 40 * 40 - 20 * 30
    assert torch.equal(crop[:, outside], FILL.view(3, 1).expand(-1, int(outside.sum())))


def test_a_flip_mirrors_both_and_a_second_one_undoes_it():
    image, mask = noise(32, 32)
    mirror = JointAugment(32, scales=[1.0], flip=1)
    once = mirror(image, mask)
    assert torch.equal((once[0] * 255).round().byte(), image.flip(2))
    assert torch.equal(once[1], mask.flip(1).long())
    twice = mirror((once[0] * 255).round().byte(), once[1].byte())
    assert torch.equal((twice[0] * 255).round().byte(), image)
    assert torch.equal(twice[1], mask.long())


def test_a_range_of_scales_is_filled_evenly_and_never_left():
    torch.manual_seed(0)
    image, mask = ramps(100, 100)
    augment = JointAugment(256, scales=[0.5, 2.0], discrete=False)
    widths = torch.tensor([int(seen(augment(image, mask)[0])[0].sum()) for _ in range(300)])
    assert 50 <= widths.min() < 55 and 195 < widths.max() <= 200
    assert 115 < widths.float().mean() < 135


def test_crops_lie_at_all_places_evenly():
    torch.manual_seed(0)
    image, mask = ramps(8, 11)
    augment = JointAugment(8, scales=[1.0], flip=0)
    starts = torch.stack([(augment(image, mask)[0][0, 0, 0] * 255).round() for _ in range(2000)])
    counts = starts.long().bincount(minlength=4)
    assert counts.shape == (4,) and (counts > 400).all()


def test_everything_comes_from_torchs_generator():
    augment, pair = JointAugment(32), noise(40, 50)
    torch.manual_seed(3)
    first, second = augment(*pair), augment(*pair)
    torch.manual_seed(3)
    again = augment(*pair)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[0], second[0])
    assert first[0].dtype == torch.float32 and first[1].dtype == torch.uint8


def test_batches_of_masked_crops(tmp_path):
    base = make(tmp_path)
    data = load(base, labels=None)

    def sample(id):
        return masked_crop(data, JointAugment(24), id)

    [batch] = train_batches(data, sample, 4, 1, seed=0, workers=0)
    assert batch["image"].shape == (4, 3, 24, 24) and batch["mask"].shape == (4, 24, 24)
    assert set(batch["name"]) <= set(data.train)
    for path in (base / "SegmentationClassAug").iterdir():
        truncate(path)
    with pytest.raises(InputError, match=r"\.png: cannot be read"):
        list(train_batches(data, sample, 4, 1, seed=0, workers=0))
