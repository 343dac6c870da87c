"""Compares the dense energy loss with its definition in float64."""

import pytest
import torch
import torch.nn.functional as F

from oversmoothing.lab.tasks.wsss.energy import dense_energy

H, W = 16, 20


@pytest.fixture
def scene():
    """Two images with seven classes, an ignored corner and one box smaller than its image."""
    torch.manual_seed(0)
    images = torch.rand(2, 3, H, W, dtype=torch.float64)
    logits = (2 * torch.randn(2, 7, H, W, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(0, 7, (2, H, W))
    labels[:, :6, :9] = 255
    box = torch.tensor([[0, H, 0, W], [2, 11, 5, 18]])
    return images, logits, labels, box


def explicit(images, logits, labels, box, sigma_rgb=15.0, sigma_xy=100.0):
    """Value and gradient with respect to the small probabilities, one image after another."""
    S = F.interpolate(logits.softmax(1), scale_factor=0.5, mode="bilinear")
    value, gradient = 0.0, torch.zeros_like(S)
    for b in range(len(S)):
        inside = torch.zeros(H, W).double()
        inside[box[b, 0] : box[b, 1], box[b, 2] : box[b, 3]] = 1
        inside, ignored = inside[::2, ::2], labels[b, ::2, ::2] == 255
        gate = (inside - S[b].amax(0)).clamp(min=0)
        gate[ignored] = 1
        y, x = torch.meshgrid(torch.arange(H // 2), torch.arange(W // 2), indexing="ij")
        place = torch.stack([x, y]).double() / (sigma_xy / 2)
        f = torch.cat([place, images[b, :, ::2, ::2] * 255 / sigma_rgb]).flatten(1).T
        A = torch.exp(-0.5 * (f[:, None] - f[None]).square().sum(-1))
        P = (S[b] * inside).flatten(1).T
        AS = gate.flatten()[:, None] * (A @ P)
        value = value - (P * AS).sum() / len(S)
        gradient[b] = (-2 * AS / len(S)).T.reshape(S[b].shape) * inside
    return value, torch.autograd.grad(S, logits, gradient)[0]


@pytest.mark.parametrize("sigma_rgb, sigma_xy", [(15.0, 100.0), (80.0, 10.0)])
def test_value_and_gradient_are_the_definition(scene, sigma_rgb, sigma_xy) -> None:
    sigmas = {"sigma_rgb": sigma_rgb, "sigma_xy": sigma_xy}
    value, gradient = explicit(*scene, **sigmas)
    energy = dense_energy(*scene, **sigmas, filter="exact")
    torch.testing.assert_close(energy, value, rtol=1e-6, atol=0)
    torch.testing.assert_close(torch.autograd.grad(energy, scene[1])[0], gradient)


def test_lattice_is_near_the_definition(scene) -> None:
    value, gradient = explicit(*scene, sigma_rgb=60.0)
    energy = dense_energy(*scene, sigma_rgb=60.0)
    assert energy.item() == pytest.approx(value.item(), rel=0.05)
    found = torch.autograd.grad(energy, scene[1])[0]
    assert (found - gradient).norm() / gradient.norm() < 0.25


@pytest.mark.parametrize("filter", ["exact", "lattice", "toco"])
def test_no_gradient_outside_the_box_nor_where_the_gate_is_shut(scene, filter) -> None:
    images, logits, labels, box = scene
    with torch.no_grad():
        logits[0, 3, 8:14, 4:12] = 1000.0  # certain: max S = 1
    dense_energy(images, logits, labels, box, filter=filter).backward()
    assert (logits.grad[1, :, 12:] == 0).all()
    assert (logits.grad[1, :, :, 18:] == 0).all()
    assert (logits.grad[0, :, 8:14, 10:12] == 0).all()
    assert (logits.grad[0, :, :8, 14:] != 0).any()


def test_parts_of_a_batch_add_up(scene) -> None:
    whole = dense_energy(*scene, filter="exact")
    parts = [
        dense_energy(*(x[i : i + 1] for x in scene), filter="exact", num_images=2) for i in (0, 1)
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_odd_sizes_and_bfloat16(scene) -> None:
    images, logits, labels, box = (x[..., :-1] if x.dim() > 2 else x for x in scene)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        energy = dense_energy(images.float(), logits.bfloat16(), labels, box, filter="exact")
    assert energy.dtype == torch.float32
    expected = dense_energy(images, logits, labels, box, filter="exact")
    assert energy.item() == pytest.approx(expected.item(), rel=1e-2)
