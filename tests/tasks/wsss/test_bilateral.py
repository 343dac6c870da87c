"""Compares the exact filter with the explicit matrix, and the lattice with the exact filter."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.wsss.energy import exact, lattice, toco
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


def test_exact_is_the_explicit_matrix(monkeypatch) -> None:
    f, S = 3 * torch.rand(2, 70, 5).double(), torch.rand(2, 70, 4).double()
    A = torch.exp(-0.5 * (f[:, :, None] - f[:, None]).square().sum(-1))
    for block in (1, 200, 2**20):
        monkeypatch.setattr("oversmoothing.lab.tasks.wsss.energy.CPU_BLOCK", block)
        torch.testing.assert_close(exact(f, S), A @ S)
    torch.testing.assert_close(exact(f[0] + 100, S[0]), (A @ S)[0])


def test_lattice_on_photographs(data_root) -> None:
    folder = data_root / "VOC2012" / "JPEGImages"
    if not folder.is_dir():
        pytest.skip("no VOC images")
    for path in sorted(folder.iterdir())[::500]:
        pixels = np.array(Image.open(path).convert("RGB"))[:160:2, :160:2]
        images = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
        f, S = position_and_colour(images, 15.0, 50.0), soft_values(1, 80, 80)
        assert gap(lattice(f, S), exact(f, S)) < 0.13
        energies = [(form(f, S) * S).sum().item() for form in (exact, lattice, toco)]
        assert energies[1] == pytest.approx(energies[0], rel=0.04)
        assert 0.5 < energies[2] / energies[0] < 0.65


def test_lattice_is_symmetric_but_for_the_order_of_its_axes_and_linear() -> None:
    f = position_and_colour(torch.rand(1, 3, 20, 20).double(), 60.0, 20.0)
    plan, S, T = Lattice(f), torch.rand(1, 400, 3).double(), torch.rand(1, 400, 3).double()
    torch.testing.assert_close(plan(2 * S - T), 2 * plan(S) - plan(T))
    assert (plan(S) * T).sum().item() == pytest.approx((plan(T) * S).sum().item(), rel=0.01)


@pytest.mark.parametrize("form", [lattice, toco])
def test_images_of_a_batch_do_not_mix(form) -> None:
    f, S = position_and_colour(torch.rand(3, 3, 16, 18), 15.0, 50.0), torch.rand(3, 288, 4)
    f[2] = f[0]
    alone = torch.cat([form(f[i : i + 1], S[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(form(f, S), alone, rtol=1e-4, atol=1e-4)


def test_one_colour_is_exact_in_its_sum() -> None:
    """All pixels at one point of feature space: the calibrated filter adds them all up."""
    f, S = torch.full((1, 300, 5), 0.37), torch.rand(1, 300, 2)
    torch.testing.assert_close(
        lattice(f, S), S.sum(dim=1, keepdim=True).expand_as(S), rtol=1e-5, atol=0
    )


def test_features_too_far_apart() -> None:
    f = position_and_colour(torch.rand(1, 3, 8, 8), 1e-3, 1e-3)
    with pytest.raises(InputError, match="choose larger σ, or for L_reg task.method.filter=exact"):
        lattice(f, torch.rand(1, 64, 1))


def test_the_exact_filter_multiplies_in_all_bits(monkeypatch) -> None:
    """TF32 would lose the difference of squares; what the user chose comes back."""
    seen, plain = [], torch.mm
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    monkeypatch.setattr(torch, "set_float32_matmul_precision", seen.append)
    monkeypatch.setattr(torch, "mm", lambda *a, **k: seen.append("product") or plain(*a, **k))
    f = torch.rand(1, 6, 5)
    exact(f, torch.rand(1, 6, 2))
    assert seen == ["highest", "product", "product", "high"]
