"""Compares the filter of L_reg with the explicit matrix."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.wsss.energy import filtered
from oversmoothing.lab.tasks.wsss.lattice import Lattice, position_and_colour


def gap(found, expected) -> float:
    return ((found - expected).norm() / expected.norm()).item()


def soft_values(B, H, W, C=5):
    """Smooth class probabilities. Shapes: -> (B, H·W, C)."""
    coarse = 3 * torch.randn(B, C, 5, 5)
    return F.interpolate(coarse, (H, W), mode="bilinear").softmax(1).flatten(2).mT


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_filter_on_photographs(data_root) -> None:
    folder = data_root / "VOC2012" / "JPEGImages"
    if not folder.is_dir():
        pytest.skip("no VOC images")
    for path in sorted(folder.iterdir())[::500]:
        pixels = np.array(Image.open(path).convert("RGB"))[:100:2, :100:2]
        images = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
        f, S = position_and_colour(images, 15.0, 50.0), soft_values(1, 50, 50)
        found, expected = filtered(f, S), torch.exp(-0.5 * torch.cdist(f, f).square()) @ S
        assert 0.5 < (found * S).sum() / (expected * S).sum() < 0.65
        assert gap(found * expected.sum() / found.sum(), expected) < 0.13


def test_lattice_is_symmetric_but_for_the_order_of_its_axes_and_linear() -> None:
    f = position_and_colour(torch.rand(1, 3, 20, 20).double(), 60.0, 20.0)
    plan, S, T = Lattice(f), torch.rand(1, 400, 3).double(), torch.rand(1, 400, 3).double()
    torch.testing.assert_close(plan(2 * S - T), 2 * plan(S) - plan(T))
    assert (plan(S) * T).sum().item() == pytest.approx((plan(T) * S).sum().item(), rel=0.01)


def test_images_of_a_batch_do_not_mix() -> None:
    f, S = position_and_colour(torch.rand(3, 3, 16, 18), 15.0, 50.0), torch.rand(3, 288, 4)
    f[2] = f[0]
    alone = torch.cat([filtered(f[i : i + 1], S[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(filtered(f, S), alone, rtol=1e-4, atol=1e-4)


def test_features_too_far_apart() -> None:
    f = position_and_colour(torch.rand(1, 3, 8, 8), 1e-3, 1e-3)
    with pytest.raises(InputError, match="choose larger σ"):
        filtered(f, torch.rand(1, 64, 1))
