"""Classifiers on all hosts, the one that comes with weights, and what the evaluator counts."""

from functools import partial
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.backbones.cnn import CNN
from oversmoothing.lab.backbones.t2t import T2TViT
from oversmoothing.lab.backbones.vit import MEAN, STD, ViT
from oversmoothing.lab.data.image_set import InMemory, LabelledImages
from oversmoothing.lab.tasks.classification import Classifier, Evaluation, Evaluator, classifier
from oversmoothing.lab.tasks.layers import OF_BLOCKS
from oversmoothing.metrics import smoothness

TINY = {"name": "test_vit", "weights": "none", "freeze_pos_embed": False}
SMALL = {**TINY, "depth": 2, "image_size": 32, "patch": 4}
CPU = torch.device("cpu")


def host(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "vit":
        return ViT([Centered], **SMALL)
    if kind == "t2t":
        return T2TViT([], name="t2t_vit_7")
    return CNN([], name="resnet18", weights="none", output_stride=32, multi_grid=None, dim=16)


@pytest.mark.parametrize("kind", ["vit", "t2t", "cnn"])
def test_a_gradient_reaches_every_trained_parameter(kind: str) -> None:
    network = Classifier(host(kind), 3)
    images = torch.rand(4, 3, 32, 32)
    logits = network(images)
    assert logits.shape == (4, 3)
    nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).backward()
    unreached = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
    assert not unreached


@pytest.mark.parametrize("kind", ["vit", "t2t", "cnn"])
def test_the_last_tokens_come_with_the_logits_and_without_cls(kind: str) -> None:
    network, images = Classifier(host(kind), 3).eval(), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        logits, tokens = network(images, with_tokens=True)
        features, _ = network.backbone(images)
    assert torch.equal(logits, network(images))
    expected = (
        features[:, 1:] if features.ndim == 3 else features.reshape(2, network.backbone.dim, -1).mT
    )
    assert torch.equal(tokens, expected) and tokens.shape[-1] == network.backbone.dim


def test_tokens_are_classified_by_cls_and_without_it_by_their_mean() -> None:
    network = Classifier(host("vit"), 3)
    tokens = torch.randn(2, 5, network.backbone.dim)
    assert torch.equal(network._pooled(tokens), tokens[:, 0])
    network.backbone.prefix = 0
    assert torch.equal(network._pooled(tokens), tokens.mean(dim=1))
    maps = torch.randn(2, 7, 3, 4)
    assert torch.equal(network._pooled(maps), maps.flatten(2).mean(dim=-1))


def test_the_head_of_the_weights_gives_timms_logits(data_root: Path) -> None:
    file = data_root / "weights" / "deit_tiny_patch16_224.timm.pth"
    name = "deit_tiny_patch16_224.fb_in1k"
    factory = partial(ViT, name=name, weights=str(file), sha256="a57b0314")
    network = classifier(factory, factory(aggregators=[NoAggregator])).eval()
    reference = timm.create_model(name).eval()
    state = torch.load(file, weights_only=True)
    reference.load_state_dict(state.get("model", state))
    images = torch.rand(2, 3, 224, 224)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
    with torch.no_grad():
        expected = reference((images - mean) / std)
        torch.testing.assert_close(network(images), expected, atol=1e-5, rtol=1e-5)
        centered = factory(aggregators=[partial(Centered, gamma=-1.0)])
        assert not torch.allclose(classifier(factory, centered).eval()(images), expected, atol=0.1)


def test_weights_without_a_head_give_no_classifier(
    tmp_path: Path,
) -> None:
    factory = partial(ViT, **SMALL)
    assert classifier(factory, factory(aggregators=[])) is None
    state = timm.create_model(SMALL["name"]).state_dict()
    path = tmp_path / "headless.pth"
    torch.save({key: value for key, value in state.items() if not key.startswith("head")}, path)
    factory = partial(ViT, name=SMALL["name"], weights=str(path))
    assert classifier(factory, factory(aggregators=[])) is None


def data(K: int = 7, n: int = 21) -> LabelledImages:
    """Image i has class i mod K and its own shade of grey."""
    ids = [f"im{i:02}" for i in range(n)]
    shades = torch.arange(n).mul(10).byte().view(n, 1, 1, 1).expand(n, 3, 32, 32).contiguous()
    held = InMemory(ids, shades, torch.arange(n) % K)
    names = tuple(map(str, range(K)))
    return LabelledImages("made", names, (), tuple(ids), held.pil_image, held.target, "")


class Knowing(nn.Module):
    """The right class comes at place i mod 3 of the best, for image i."""

    def forward(self, images: Tensor) -> Tensor:
        i = images[:, 0, 0, 0].mul(25.5).round().long()
        logits = torch.zeros(len(i), 7)
        logits[torch.arange(len(i)), i % 7] = 3.0
        for offset, worse in ((1, i % 3 > 0), (2, i % 3 > 1)):
            logits[torch.arange(len(i)), (i + offset) % 7] = 4.0 * worse
        return logits


@pytest.mark.parametrize("batch, workers", [(4, 0), (64, 2)])
def test_accuracy_counts_every_image_once(batch: int, workers: int) -> None:
    evaluation = Evaluation(size=32, crop=1.0, batch=batch, workers=workers)
    found = Evaluator(data(), evaluation, CPU).accuracy(Knowing())
    assert found == {"val_acc1": pytest.approx(100 / 3), "val_acc5": 100.0}
    assert Evaluator(data(K=5), evaluation, CPU)._top() == [1]


def test_layers_are_those_of_every_block_without_prefix() -> None:
    vit = host("vit")
    evaluator = Evaluator(data(), Evaluation(size=32, crop=1.0, layer_images=3, workers=0), CPU)
    assert evaluator.layer_ids() == ["im00", "im07", "im14"]
    found = evaluator.layers(vit)
    expected = []
    for id in evaluator.layer_ids():
        with torch.no_grad():
            x = vit.eval().layers(evaluator.data.image(id)[None].float() / 255)[-1]
        expected.append(float(smoothness.cosine(x[:, 1:])))
    assert found["cosine"][-1] == pytest.approx(sum(expected) / 3)
    assert {len(values) for values in found.values()} == {2}
    assert set(found) == {*(f.__name__ for f in OF_BLOCKS), "attention_similarity"}
    assert evaluator.layers(host("cnn")) == {}
