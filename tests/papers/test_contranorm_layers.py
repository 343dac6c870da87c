"""Figure 2 of ContraNorm: the measurements by layer."""

import math

import pytest
import torch

from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.launch.diagnose import Subject
from oversmoothing.lab.papers.contranorm_layers import by_layer, layer_rows, near_zero
from oversmoothing.lab.tasks.layers import measured


def test_singular_values_below_a_tenth_of_the_largest_are_near_zero() -> None:
    q, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double())
    values = torch.tensor([7.0, 1.0, 0.71, 0.69, 0.1, 0.0]).double()
    x = 3 * q @ values.diag() @ q.mT
    broken = x.clone()
    broken[2, 3] = math.inf
    found = near_zero(torch.stack([x, torch.eye(6).double(), torch.ones(6, 6), broken]))
    assert found[:3].tolist() == pytest.approx([3 / 6, 0, 5 / 6])
    assert found[3].isnan()


def test_layers_are_measured_without_the_class_token() -> None:
    seeds = []
    for seed in range(2):
        torch.manual_seed(seed)
        vit = ViT([], "deit_tiny_patch16_224", "none", depth=2, image_size=32, patch=8).eval()
        images = torch.rand(3, 3, 32, 32).split(2)
        seeds.append(by_layer(Subject(vit, images, "")))
        with torch.no_grad():
            tokens = [[x[:, 1:] for x in vit.layers(batch)] for batch in images]
        expected = measured(tokens)
        for name in ("cosine", "effective_rank"):
            assert seeds[-1][name] == pytest.approx(expected[name])
    rows = layer_rows("ViT", seeds)
    assert [(row["metric"], row["block"]) for row in rows[-4:]] == [
        ("attention_similarity", 1),
        ("attention_similarity", 2),
        ("near_zero", 1),
        ("near_zero", 2),
    ]
    last = [seed["near_zero"][1] for seed in seeds]
    assert rows[-1]["mean"] == pytest.approx(sum(last) / 2) and rows[-1]["seeds"] == 2
