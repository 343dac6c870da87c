"""Mixed batches and their loss: what belongs together stays together."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.tasks.classification import Objective
from oversmoothing.lab.tasks.classification_augment import Mix
from oversmoothing.lab.training.loop import split
from oversmoothing.metrics.uniformity import uniformity

K = 4


def batch(B: int = 6) -> dict:
    """Image i is constant, and says its class."""
    target = torch.arange(B) % K
    images = F.one_hot(target, K)[:, :, None, None].float().expand(B, K, 8, 8).clone()
    names, box = [str(i) for i in range(B)], torch.zeros(B, 4, dtype=torch.int64)
    batch = {"image": images, "target": target, "name": names, "batch_size": B}
    return batch | {"box": box, "noise": torch.zeros(0)}


def objective(mix: Mix, seed: int = 0) -> Objective:
    return Objective(mix, K, seed, mean=torch.zeros(K, 1, 1), std=torch.ones(K, 1, 1))


@pytest.mark.parametrize("mix", [Mix(cutmix=0.0), Mix(mixup=0.0), Mix()])
def test_targets_are_mixed_in_the_shares_of_the_pixels(mix: Mix) -> None:
    given = batch()
    for seed in range(8):
        images, soft = mix(given["image"], given["target"], K, seed)
        shares = images.mean(dim=(2, 3))
        expected = 0.9 * shares + 0.1 / K
        torch.testing.assert_close(soft, expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(given["image"], batch()["image"])  # not in place


def test_what_is_mixed_depends_on_seed_and_step_alone() -> None:
    own = objective(Mix())
    state = np.random.get_state()[1].copy()
    first, again = own.prepare(batch(), 7), own.prepare(batch(), 7)
    assert torch.equal(first["image"], again["image"]) and torch.equal(first["soft"], again["soft"])
    assert not torch.equal(first["soft"], own.prepare(batch(), 8)["soft"])
    assert not torch.equal(first["soft"], objective(Mix(), seed=1).prepare(batch(), 7)["soft"])
    assert (np.random.get_state()[1] == state).all()


def test_without_mixing_targets_are_only_smoothed() -> None:
    found = objective(Mix(prob=0.0, smoothing=0.2)).prepare(batch(5), 0)
    assert torch.equal(found["image"], batch(5)["image"])
    torch.testing.assert_close(found["soft"], 0.8 * F.one_hot(batch(5)["target"], K) + 0.05)


class Means(nn.Module):
    def forward(self, images: Tensor, with_tokens: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        means = images.mean(dim=(2, 3))
        return (means, images[:, :, 0].mT) if with_tokens else means


def test_parts_add_up_to_the_mean_cross_entropy_of_the_batch() -> None:
    own = objective(Mix(prob=0.0, smoothing=0.1))
    whole = own.prepare(batch(), 0)
    logits = Means()(whole["image"]).double()
    expected = F.cross_entropy(logits, batch()["target"], label_smoothing=0.1)
    parts = split(whole, 3)
    found = sum(own.losses(Means(), part, 0)["cls"] for part in parts)
    assert len(parts) == 3 and float(found) == pytest.approx(float(expected), rel=1e-6)


def test_parts_add_up_to_the_weighted_uniformity_of_the_batch() -> None:
    own = replace(objective(Mix(prob=0.0)), uniformity=0.3)
    given = batch()
    given["image"] = torch.rand(given["image"].shape, generator=torch.Generator().manual_seed(0))
    whole = own.prepare(given, 0)
    tokens = F.normalize(whole["image"][:, :, 0].mT.double(), dim=-1)
    found = [own.losses(Means(), part, 0) for part in split(whole, 3)]
    expected = 0.3 * uniformity(tokens).mean()
    assert float(sum(part["uniformity"] for part in found)) == pytest.approx(float(expected))
    plain = replace(own, uniformity=0.0)
    alone = sum(plain.losses(Means(), part, 0)["cls"] for part in split(whole, 3))
    assert torch.equal(sum(part["cls"] for part in found), alone)


def test_the_uniformity_of_alike_tokens_is_exact_under_autocast() -> None:
    tokens = torch.ones(2, 5, 8) + 0.1 * torch.randn(2, 5, 8, generator=torch.manual_seed(0))

    class Fixed(nn.Module):
        def forward(self, images: Tensor, with_tokens: bool) -> tuple[Tensor, Tensor]:
            return torch.zeros(2, K), tokens

    part = {"image": torch.zeros(2, 3, 4, 4), "soft": torch.full((2, K), 1 / K), "batch_size": 2}
    made = replace(objective(Mix()), uniformity=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        found = made.losses(Fixed(), part, 0)["uniformity"]
    expected = uniformity(F.normalize(tokens.double(), dim=-1)).mean()
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
