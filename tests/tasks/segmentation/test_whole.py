"""Whole images: what padding, flips and scales must not change."""

import pytest
import torch
import torch.nn.functional as F
from fake_network import MEAN, Fake, one_by_one, picture
from torch import Tensor

from oversmoothing.lab.tasks.segmentation_network import multi_scale, whole_image


@pytest.mark.parametrize("size", [(17, 25), (16, 24), (1, 2), (31, 40)])
@pytest.mark.parametrize(("patch", "stride"), [(1, 8), (1, 16), (16, 0), (14, 0)])
def test_padding_suits_the_backbone_and_changes_no_valid_logit(size, patch, stride):
    conv, image = one_by_one(), picture(*size)
    network = Fake(conv, patch, stride)
    logits = whole_image(network, image)
    torch.testing.assert_close(logits, conv(image[None])[0], rtol=0, atol=1e-6)
    [seen], (H, W) = network.saw, size
    for padded, side in zip(seen.shape[-2:], size):
        assert padded % (stride or patch) == (1 if stride else 0)
        assert side <= padded < side + (stride or patch) or padded == stride + 1
    assert torch.equal(seen[0, :, :H, :W], image)
    outside = torch.ones(seen.shape[-2:], dtype=torch.bool)
    outside[:H, :W] = False
    assert (seen[0, :, outside] == MEAN.view(3, 1)).all()


def test_features_lie_on_the_pixels_they_came_from():
    """A network that keeps every 8th pixel gives a linear ramp back, unshifted."""
    rows, columns = torch.arange(33.0)[:, None], torch.arange(41.0)
    ramp = torch.stack([(rows + 0 * columns) / 64, (0 * rows + columns) / 64, rows * columns * 0])
    logits = whole_image(Fake(lambda images: images[..., ::8, ::8]), ramp)
    torch.testing.assert_close(logits, ramp, rtol=0, atol=1e-6)


def test_patches_lie_on_the_pixels_they_came_from():
    """A network that averages patches gives a linear ramp back between their middles."""
    ramp = torch.stack(torch.meshgrid(torch.arange(48.0), torch.arange(64.0), indexing="ij"))
    ramp = torch.cat([ramp, ramp[:1]]) / 64
    logits = whole_image(Fake(lambda images: F.avg_pool2d(images, 16), patch=16), ramp)
    inside = (slice(None), slice(8, -8), slice(8, -8))
    torch.testing.assert_close(logits[inside], ramp[inside], rtol=0, atol=1e-6)


def test_a_flip_is_undone():
    """Logits of the mirror image are mirrored back; a symmetric network gives twice its logits."""
    image, network = picture(21, 30), Fake(one_by_one())
    twice = multi_scale(network, image, [1.0], flip=True)
    torch.testing.assert_close(twice, 2 * whole_image(network, image))

    def left_to_right(images: Tensor) -> Tensor:  # sees the side: averages out
        W = images.shape[-1]
        return torch.arange(W).expand(1, 1, images.shape[-2], W) - (W - 1) / 2

    sides = multi_scale(Fake(left_to_right, output_stride=1), image, [1.0], flip=True)
    assert sides.abs().max() < 1e-5


@pytest.mark.parametrize("size", [None, 40])
def test_several_scales_are_the_sum_of_raw_logits(size):
    image, conv = picture(24, 32), one_by_one()
    expected = torch.zeros(6, 24, 32)
    height, width = (24, 32) if size is None else (30, 40)
    for scale in (0.5, 1.0, 1.75):
        sides = int(height * scale), int(width * scale)
        scaled = F.interpolate(image[None], sides, mode="bilinear", align_corners=True)
        logits = F.interpolate(conv(scaled), (24, 32), mode="bilinear", align_corners=True)
        expected += 2 * logits[0]
    found = multi_scale(Fake(conv), image, [0.5, 1.0, 1.75], flip=True, size=size)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_scaled_side_is_whole_pixels_without_rounding_errors():
    network = Fake(one_by_one(), output_stride=1)
    multi_scale(network, picture(100, 75), [0.29, 0.5], flip=False)  # 0.29 · 100 < 29 in floats
    assert [tuple(seen.shape[-2:]) for seen in network.saw] == [(29, 21), (50, 37)]
