"""Figures 3 and 4 of HEMNet and its ELBO: the measurements, and their lack of side effects."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import here
from matplotlib.figure import Figure
from torch import Tensor

from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.cnn import CNN
from oversmoothing.lab.papers import hemnet_elbo
from oversmoothing.lab.papers.hemnet_fig3 import (
    em_of,
    numbers,
    profile,
    recording,
    watched,
    with_steps,
)
from oversmoothing.lab.papers.hemnet_fig4 import figure4, maps_of
from oversmoothing.lab.tasks.segmentation import PixelCrossEntropy
from oversmoothing.lab.tasks.segmentation_network import Segmenter, whole_image

ROOT = Path(__file__).parents[2]
DIM, K, LABELS, SIDE = 8, 4, 3, 33
HEM = partial(EM, num_bases=K, step_size=0.5, l2=False, gradients=True)


def make(aggregator=HEM) -> Segmenter:
    torch.manual_seed(0)
    options = {"name": "resnet18", "weights": "none", "multi_grid": None, "dim": DIM}
    return Segmenter(CNN([aggregator], **options), LABELS, dim=6, dropout=0.0)


def batch(images: int = 2) -> dict:
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(2, 3, SIDE, SIDE, generator=generator)
    mask = torch.randint(LABELS, (2, SIDE, SIDE), generator=generator)
    return {"name": ["a", "b"], "image": image, "mask": mask, "batch_size": images}


LOSS = PixelCrossEntropy(0.0)


def gradient_to_x(network: Segmenter) -> Tensor:
    """By a plain backward pass through all of a network."""
    kept: list[Tensor] = []

    def keep(module: object, given: object, x: Tensor) -> None:
        x.retain_grad()
        kept.append(x)

    network.backbone.unit.conv1.register_forward_hook(keep)
    LOSS.losses(network.train(), batch(), 0)["seg"].backward()
    return kept[0].grad


@pytest.mark.parametrize("step_size", [0.3, 1.0])
def test_total_is_the_gradient_of_a_plain_backward_pass(step_size: float) -> None:
    network = with_steps(make(), step_size, 4)
    found = profile(network, [batch()], LOSS)
    expected = gradient_to_x(network).abs().mean().item()
    assert found["total"] == pytest.approx(expected, rel=1e-4)
    assert len(found["n_steps"]) == len(found["e_steps"]) == len(found["elbo"]) == 4


def test_batches_are_averaged_and_weighed_as_in_training() -> None:
    network = make()
    once, half = (profile(network, [batch(images)], LOSS)["total"] for images in (2, 4))
    assert half == pytest.approx(once / 2, rel=1e-5)
    both = profile(network, [batch(2), batch(4)], LOSS)["total"]
    assert both == pytest.approx(0.75 * once, rel=1e-5)


def test_measuring_disturbs_nothing() -> None:
    network = make().eval()
    before = {k: v.clone() for k, v in network.state_dict().items() if isinstance(v, Tensor)}
    random = torch.get_rng_state()
    profile(network, [batch()], LOSS)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(network.state_dict()[k], v) for k, v in before.items())
    assert not network.training and "e_step" not in vars(em_of(network))
    assert em_of(network).pending is None
    assert all(p.requires_grad and p.grad is None for p in network.parameters())


def test_falls_of_the_elbo_are_those_of_the_e_step() -> None:
    """With the posterior as E-step nothing falls; with HEMNet's dot product E-steps may."""
    found = {}
    for kernel in ("distance", "dot"):
        network = with_steps(make(partial(HEM, kernel=kernel)), 1.0, 12)
        em_of(network).bases.mul_(3)
        with torch.no_grad():
            network.backbone.unit.conv1.weight.mul_(6)  # X far apart
        found[kernel] = profile(network, [batch()], LOSS)
    assert found["distance"]["n_falls"] == found["distance"]["e_falls"] == 0
    assert np.all(np.diff(np.ravel(found["distance"]["elbo"])) > -1e-3)
    assert found["dot"]["n_falls"] == 0 and found["dot"]["e_falls"] > 0


@pytest.mark.parametrize(
    ("aggregator", "step_size", "key"),
    [
        (partial(EM, num_bases=K), 0.5, "aggregator.gradients"),
        (NoAggregator, 0.5, "aggregator"),
        (HEM, 1.5, "--step-sizes"),
    ],
)
def test_what_has_no_gradient_or_no_em_is_refused(
    aggregator: type, step_size: float, key: str
) -> None:
    with pytest.raises(InputError, match=f"^{key}: "):
        with_steps(make(aggregator), step_size, 3)


@pytest.mark.parametrize(("steps", "expected"), [(4, [0, 2, 4]), (5, [0, 2, 4, 5])])
def test_looks_come_before_between_and_after(steps: int, expected: list[int]) -> None:
    seen: list[int] = []
    done: list[int] = []
    loader = watched(lambda start: iter(range(start, 100)), steps, 2, seen.append)
    for number in loader(start=0):
        assert seen[-1] <= number < seen[-1] + 2
        done.append(number)
    assert done == list(range(steps)) and seen == expected


def made_up(step_size: float, T: int = 6, falls: float = 0.0, e_step: float = 1e-9) -> dict:
    n_steps = [step_size * (1 - step_size) ** (T - t) for t in range(1, T + 1)]
    elbo = [[-((1 - step_size) ** t), -((1 - step_size) ** (t + 1))] for t in range(T)]
    return {"n_steps": n_steps, "e_steps": [e_step] * T, "total": sum(n_steps), "elbo": elbo,
            "n_falls": 0.0, "e_falls": falls}  # fmt: skip


def test_shares_and_peaks_follow_the_step_size() -> None:
    found = {η: numbers(η, made_up(η)) for η in (0.9, 0.4, 1.0)}
    for row in found.values():
        assert row["first_half"] == pytest.approx(row["first_half_eq18"], abs=1e-12)
    assert found[1.0]["first_half"] == 0 and found[1.0]["peak"] == 1


def test_maps_lie_where_the_tokens_do() -> None:
    """At stride 8 pixel 8i is token i, also of an image that needs padding."""
    network = make().eval()
    image = torch.rand(3, 30, 45, generator=torch.Generator().manual_seed(2))
    maps = maps_of(network, image, number=K)
    with torch.no_grad(), recording(em_of(network)) as record:
        expected = whole_image(network, image).argmax(0)
    assert np.array_equal(maps.mask, expected.numpy())
    T = em_of(network).iterations
    assert maps.gamma.shape == maps.x_tilde.shape == (T, K, 30, 45)
    assert np.allclose(maps.gamma.sum(axis=1), 1, atol=1e-5)  # all K bases are shown
    x = record[0].x_n[0].unflatten(0, (5, 7))  # 33 × 49 after padding
    shown = x[:4, :6, list(maps.channels)].permute(2, 0, 1).numpy()
    assert np.allclose(maps.x[:, ::8, ::8], shown, atol=1e-5)
    last = (record[-1].gamma[0] @ record[-1].mu[0]).unflatten(0, (5, 7))
    shown = last[:4, :6, list(maps.channels)].permute(2, 0, 1).numpy()
    assert np.allclose(maps.x_tilde[-1][:, ::8, ::8], shown, atol=1e-5)


def test_maps_that_vary_most_are_chosen_and_described() -> None:
    network = make().eval()
    image = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    maps = maps_of(network, image, number=2)
    with torch.no_grad(), recording(em_of(network)) as record:
        whole_image(network, image)
    x, gamma = record[0].x_n[0], record[-1].gamma[0]
    assert maps.channels == tuple(x.var(dim=0).argsort(descending=True)[:2].tolist())
    assert maps.bases == tuple(gamma.var(dim=0).argsort(descending=True)[:2].tolist())
    for step, entropy, explained in zip(record, maps.entropy, maps.explained):
        p, rest = step.gamma[0].double(), x - step.gamma[0] @ step.mu[0]
        expected = -(p * p.log()).sum(-1).mean() / np.log(K)
        assert entropy == pytest.approx(expected.item(), rel=1e-4)
        spread = x.var(dim=0, correction=0).sum() * len(x)
        assert explained == pytest.approx(1 - (rest.square().sum() / spread).item(), abs=1e-4)
    figure = figure4(np.zeros((SIDE, SIDE, 3), np.uint8), None, maps)
    assert isinstance(figure, Figure)
    assert sum(len(axis.images) for axis in figure.axes) == 4 + 3 * 4  # no label
    with pytest.raises(InputError, match="expected 1 to 4 bases and as many channels"):
        maps_of(network, image, number=5)


def test_fig3_script_on_real_images(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = ["figure", "hem_fig3", "--samples", "3", "--steps", "1", "--every", "1"]
    words += ["--iterations", "4", "--step-sizes", "0.2", "1", "--"]
    words += [f"paths.data={data_root}", f"paths.cache={tmp_path}", "task.augment.crop=129"]
    words += ["device=cpu", "trainer.batch_size=2", "trainer.workers=0"]
    monkeypatch.chdir(tmp_path)
    assert here(words, monkeypatch) == 0, capsys.readouterr().err
    content = json.loads((tmp_path / "outputs/hem_fig3.json").read_text())
    assert content["samples"] == 4 and list(content["profiles"]) == ["0", "1"]
    start, end = (content["profiles"][step] for step in ("0", "1"))
    first = [each["elbo"][0][0] for each in start.values()]
    assert first[0] == first[1]  # the same start, bases and samples
    assert end["0.2"]["total"] != start["0.2"]["total"] > 0
    assert (tmp_path / "outputs/figures/hem_fig3.png").stat().st_size > 10000


def test_only_the_dot_product_with_free_norms_lowers_the_elbo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hemnet_elbo.main(["--runs", "3", "--iterations", "8"]) == 0
    rows = json.loads((tmp_path / "outputs/elbo.json").read_text())["rows"]
    assert all(row["n_falls"] == 0 for row in rows)
    falling = {row["e_step"] for row in rows if row["e_falls"]}
    assert falling == {"dot product (HEMNet, Eq. 8)"}
    assert len((tmp_path / "outputs/tables/elbo.md").read_text().splitlines()) == 2 + 9
