"""DeiT's augmentation: timm's own numbers, drawn from torch's generator alone."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from torch import Tensor

from oversmoothing.lab.backbones.options import MEAN, STD, per_channel
from oversmoothing.lab.tasks.classification import Evaluation
from oversmoothing.lab.tasks.classification_augment import Augment, collate, erased
from oversmoothing.lab.training.loop import to_device

MEANS, STDS = per_channel("mean", MEAN), per_channel("std", STD)


def image(height: int = 60, width: int = 80) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(0, 256, (1, 3, 6, 8), generator=generator).float()
    large = torch.nn.functional.interpolate(few, (height, width), mode="bicubic")
    return large[0].clamp(0, 255).byte()


def picture(height: int = 60, width: int = 80) -> Image.Image:
    return Image.fromarray(image(height, width).permute(1, 2, 0).contiguous().numpy())


def augmented(augment: Augment, given: Image.Image) -> Tensor:
    """An image as the network gets it: alone in its batch."""
    image, box, noise = augment(given)
    batch = to_device(collate([{"image": image, "box": box, "noise": noise}]), torch.device("cpu"))
    return erased(batch, MEANS, STDS)[0]


def drawn(augment: Augment, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return augmented(augment, picture())


@pytest.mark.parametrize("seed", range(6))
def test_after_normalisation_it_is_what_deit_feeds_its_networks(seed: int) -> None:
    reference = create_transform(
        32,
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
    )
    torch.manual_seed(seed)
    own = int(torch.randint(2**62, ()))
    random.seed(own)
    np.random.seed(own % 2**32)
    expected = reference(picture())
    found = (drawn(Augment(32), seed) - MEANS) / STDS
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


def test_pixels_are_erased_by_unit_noise_behind_the_normalisation() -> None:
    whole = Augment(32, scale=[1, 1], ratio=[1, 1], flip=0.0, rand_augment=None, erase=0.0)
    erasing = Augment(32, scale=[1, 1], ratio=[1, 1], flip=0.0, rand_augment=None, erase=1.0)
    torch.manual_seed(0)
    noise = []
    for _ in range(30):
        before, after = (augmented(a, picture(32, 32)) for a in (whole, erasing))
        changed = (before - after).abs().amax(dim=0) > 1e-5
        assert 0 < changed.double().mean() < 0.5
        noise.append(((after - MEANS) / STDS)[:, changed].flatten())
    noise = torch.cat(noise)
    assert abs(noise.mean()) < 0.05 and abs(noise.std() - 1) < 0.05


def test_each_image_of_a_batch_gets_its_own_noise() -> None:
    """The result equals erasing each image separately."""
    augment = Augment(32, erase=0.7)
    torch.manual_seed(0)
    alone = [augmented(augment, picture()) for _ in range(6)]
    torch.manual_seed(0)
    parts = [dict(zip(("image", "box", "noise"), augment(picture()))) for _ in range(6)]
    sizes = {part["noise"].numel() for part in parts}
    together = erased(to_device(collate(parts), torch.device("cpu")), MEANS, STDS)
    assert torch.equal(together, torch.stack(alone)) and 0 in sizes and len(sizes) > 2


def test_draws_depend_on_torchs_generator_and_leave_the_others_alone() -> None:
    augment = Augment(32)
    first = drawn(augment, 3)
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.rand()
    random.seed(5)
    np.random.seed(5)
    assert torch.equal(drawn(augment, 3), first)
    assert (random.random(), np.random.rand()) == expected
    assert not torch.equal(drawn(augment, 4), first)


def test_evaluation_prepares_images_as_timm_does() -> None:
    reference = create_transform(32, interpolation="bicubic", crop_pct=0.875, normalize=False)
    found = Evaluation(size=32, crop=0.875).prepared(picture())
    assert torch.equal(found, reference(picture()))
    own = Evaluation(size=60, crop=1.0).prepared(picture())
    assert torch.equal(own, image()[:, :, 10:70])
