"""Compares PAR with its formula in float64, and tests laws that follow from the formula."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from oversmoothing.lab.tasks.wsss.par import PAR

AROUND = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]


def explicit(images, masks, dilations, iterations, w1=0.3, w2=0.01):
    """Pixel by pixel, row sums 1 + w2. Shapes: images (3, H, W), masks (K, H, W)."""
    _, H, W = images.shape
    d = torch.tensor([r * math.hypot(*s) for r in dilations for s in AROUND], dtype=torch.double)
    place = (-((d / d.std() / w1) ** 2)).softmax(0)
    for _ in range(iterations):
        refined = torch.zeros_like(masks)
        for i in range(H):
            for j in range(W):
                rows = [min(max(i + r * y, 0), H - 1) for r in dilations for y, _ in AROUND]
                columns = [min(max(j + r * x, 0), W - 1) for r in dilations for _, x in AROUND]
                near = images[:, rows, columns]
                gap = (near - images[:, i, j, None]) / (near.std(dim=1, keepdim=True) + 1e-8) / w1
                weight = (-gap.square()).mean(dim=0).softmax(dim=0) + w2 * place
                refined[:, i, j] = masks[:, rows, columns] @ weight
        masks = refined
    return masks


@pytest.fixture
def scene():
    torch.manual_seed(0)
    return torch.rand(2, 3, 12, 10, dtype=torch.float64), torch.rand(2, 4, 12, 10).double()


def test_equals_its_formula_in_chunks_of_rows(scene, monkeypatch) -> None:
    monkeypatch.setattr("oversmoothing.lab.tasks.wsss.par.CPU_CHUNK", 1)
    images, masks = scene
    refined = PAR((1, 2, 4, 24), iterations=3)(images, masks)
    expected = explicit(images[1], masks[1], (1, 2, 4, 24), 3) / 1.01**3
    torch.testing.assert_close(refined[1], expected, rtol=1e-10, atol=0)


def test_float32_of_a_photograph_with_flat_regions(data_root) -> None:
    folder = data_root / "VOC2012" / "JPEGImages"
    if not folder.is_dir():
        pytest.skip("no VOC images")
    pixels = np.array(Image.open(min(folder.iterdir())).convert("RGB"))[:160, :160]
    images = torch.from_numpy(pixels).permute(2, 0, 1)[None].double() / 255
    images[..., 40:100, 40:100] = 1.0
    masks = F.interpolate(torch.rand(1, 3, 10, 10).double(), (160, 160), mode="bilinear")
    refined = PAR()(images.float(), masks.float())
    assert (refined - PAR()(images, masks)).abs().max() < 1e-5


def test_what_is_constant_stays(scene) -> None:
    images, masks = scene
    constant = torch.full_like(masks, 0.3)
    torch.testing.assert_close(PAR()(images, constant), constant)
    flat = PAR(iterations=1)(torch.full_like(images, 0.7), masks)
    assert flat.isfinite().all()
    assert flat.std() < masks.std()


def test_classes_commute_flips_and_batches(scene) -> None:
    images, masks = scene
    par = PAR(iterations=4)
    refined = par(images, masks)
    order = [2, 0, 3, 1]
    torch.testing.assert_close(par(images, masks[:, order]), refined[:, order])
    for axis in (2, 3):
        flipped = par(images.flip(axis), masks.flip(axis))
        torch.testing.assert_close(flipped.flip(axis), refined)
    torch.testing.assert_close(par(images[1:], masks[1:]), refined[1:])
