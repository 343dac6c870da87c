"""Boundary IoU: a square by hand, erosions by scipy, and the laws it shares with IoU."""

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_erosion, gaussian_filter
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.overlap import BoundaryIoU, Confusion


def square(low: int, high: int, side: int = 100) -> Tensor:
    mask = torch.zeros(side, side, dtype=torch.int64)
    mask[low:high, low:high] = 1
    return mask


def blobs(seed: int, classes: int) -> Tensor:
    noise = np.random.default_rng(seed).normal(size=(classes, 60, 80))
    return torch.from_numpy(gaussian_filter(noise, (0, 5, 5)).argmax(0))


def counted(prediction: Tensor, truth: Tensor, C: int = 2, **options: object) -> BoundaryIoU:
    boundary = BoundaryIoU(C, **options)
    boundary.update(prediction, truth)
    return boundary


def test_a_dilated_square_scores_what_its_bands_share() -> None:
    """Side 40 against 44; the band is 3 px wide: 2 % of the diagonal of 100 × 100 px."""
    both, either = 40**2 - 38**2, 44**2 - 34**2
    found = counted(square(28, 72), square(30, 70)).iou()
    assert found[1] == pytest.approx(100 * both / either)
    apart = counted(square(27, 73), square(30, 70)).iou()  # dilated by the band's width
    assert apart[1] == 0
    plain = Confusion(2)
    plain.update(square(28, 72), square(30, 70))
    assert plain.iou()[1] > 80 > 30 > found[1]


def test_predictions_at_unknown_pixels_do_not_count() -> None:
    truth = blobs(0, 4).masked_fill(blobs(1, 9) == 0, 255)
    for elsewhere in (0, 3, 255):
        assert counted(truth.masked_fill(truth == 255, elsewhere), truth, 4).iou() == [100] * 4


def test_a_band_as_wide_as_the_objects_gives_the_ordinary_iou() -> None:
    prediction, truth = blobs(2, 5).masked_fill(blobs(3, 9) == 0, 255), blobs(4, 5)
    for unsure in ("wrong", "drop"):
        plain = Confusion(5, unsure)
        plain.update(prediction, truth)
        whole = counted(prediction, truth, 5, unsure=unsure, width=1.0)
        assert whole.iou() == plain.iou()
        assert whole.miou({0, 2}) == plain.miou({0, 2})


def test_bands_are_what_erosions_take_away_and_images_add_up() -> None:
    """The authors take a mask less its erosions by 3 × 3 pixels, with nothing outside the image."""
    total, hit, union = BoundaryIoU(4), np.zeros(4), np.zeros(4)
    for seed in range(3):
        masks = blobs(seed, 4), blobs(seed + 10, 4)
        for label in range(4):
            p, t = (m.numpy() == label for m in masks)
            p, t = (m & ~binary_erosion(m, np.ones((3, 3)), iterations=2) for m in (p, t))
            hit[label] += (p & t).sum()
            union[label] += (p | t).sum()
        total.update(*masks)  # 2 px: 2 % of the diagonal of 60 × 80
    assert total.iou() == pytest.approx(100 * hit / union)


def test_mistakes_change_no_count() -> None:
    boundary = BoundaryIoU(2)
    with pytest.raises(InputError, match="^images: "):
        boundary.update(square(1, 2), square(1, 2, side=50))
    with pytest.raises(InputError, match="^images: prediction: "):
        boundary.update(7 * square(1, 2), square(1, 2))
    with pytest.raises(InputError, match="^width: "):
        BoundaryIoU(2, width=0)
    for key, wrong in (("num_classes", (256,)), ("unsure", (2, "keep"))):
        with pytest.raises(InputError, match=f"^{key}: "):
            Confusion(*wrong)
    assert int(boundary.matrix.sum()) == 0
