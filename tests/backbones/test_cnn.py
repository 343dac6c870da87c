"""Convolutional backbones against timm and against the dilations of EMANet's code."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from small_cnn import Cut, Swap, cnn, images
from torch import Tensor, nn

from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.cnn import CNN
from oversmoothing.lab.launch.config import compose_config

IMAGENET = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
MOBILE = "mobilenetv2_100"
KERAS = {"name": MOBILE, "same_padding": True, "mean": [0.5] * 3, "std": [0.5] * 3}


@pytest.mark.parametrize("name", ["resnet18", "resnet50s", MOBILE])
@torch.no_grad()
def test_at_output_stride_32_every_bit_is_timms(name: str) -> None:
    model, x = cnn(name=name, output_stride=32), images(2, 3, 97, 64)
    reference = timm.create_model(name).eval()
    reference.load_state_dict(model.network.state_dict(), strict=False)
    aux, last = model.network((x - IMAGENET[0]) / IMAGENET[1])
    expected = reference.forward_intermediates((x - IMAGENET[0]) / IMAGENET[1])[1]
    assert torch.equal(last, expected[-1]) and torch.equal(aux, expected[-2])
    features, taken = model(x)
    assert torch.equal(features, model.reduce(last)) and torch.equal(taken, aux)


@torch.no_grad()
def test_the_real_mobilenet(data_root: Path) -> None:
    """Keras' weights, whose padding is uneven at strides."""
    path = data_root / "weights/mobilenetv2_100.timm.pth"
    if not path.exists():
        pytest.skip("no weights")
    model = cnn(weights=str(path), sha256="61fc6535", output_stride=32, **KERAS)
    reference = timm.create_model(MOBILE, pad_type="same").eval()
    reference.load_state_dict(torch.load(path, weights_only=True), strict=True)
    x = images(2, 3, 70, 96)
    last = model.network((x - model.mean) / model.std)[1]
    whole = reference.bn2(reference.conv_head(last))
    assert torch.equal(whole, reference.forward_features((x - 0.5) / 0.5))
    assert model.pretrained
    with pytest.raises(InputError, match=r"of another architecture: .*expected mobilenetv2_050"):
        cnn(name="mobilenetv2_050", weights=str(path))


def dilations(stage: nn.Sequential) -> list[int]:
    return [block.conv2.dilation[0] for block in stage]


@pytest.mark.parametrize("name", ["resnet50", "resnet101s"])
@pytest.mark.parametrize(
    ("stride", "third", "fourth", "plain"),
    [(8, (1, 2), [2, 8, 16], [2, 4, 4]), (16, (1, 1), [1, 4, 8], [1, 2, 2])],
)
def test_dilations_are_those_of_emanet(
    name: str, stride: int, third: tuple, fourth: list, plain: list
) -> None:
    with torch.device("meta"):
        network = cnn(name=name, output_stride=stride, multi_grid=[1, 2, 4]).network
        assert dilations(cnn(name=name, output_stride=stride).network.layer4) == plain
    first, *rest = dilations(network.layer3)
    assert first == third[0] and set(rest) == {third[1]}
    assert dilations(network.layer4) == fourth
    for stage in (network.layer3, network.layer4):
        assert all(block.conv2.padding == block.conv2.dilation for block in stage)
    if name == "resnet101s":
        assert [c.out_channels for c in network.conv1 if isinstance(c, nn.Conv2d)] == [64, 64, 128]


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(
    "factories", [[], [LayerNorm], [Swap], [Swap, LayerNorm], [Cut], [Cut, LayerNorm]]
)
def test_a_gradient_reaches_every_trainable_parameter(factories: list, frozen: bool) -> None:
    model = cnn(*factories, batch_norm="frozen" if frozen else "train").train()
    features, _ = model(images(2, 3, 33, 40))
    (features * torch.randn_like(features)).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.any(), name
    still = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert any(name.startswith("unit.conv1.") for name in still) == (Cut in factories)
    assert any(name.startswith("network.") for name in still) == frozen


def step(model: CNN) -> None:
    """One step of SGD in training mode, on images unlike those before."""
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(images(4, 3, 33, 33))[0].square().mean().backward()
    optimizer.step()


def norms_of(module: nn.Module) -> dict[str, Tensor]:
    norms = {name for name, m in module.named_modules() if isinstance(m, nn.BatchNorm2d)}
    state = module.state_dict()
    return {key: state[key].clone() for key in state if key.rpartition(".")[0] in norms}


@pytest.mark.parametrize("name", ["resnet18", MOBILE])
def test_frozen_batch_norms_are_constant_and_new_ones_learn(name: str) -> None:
    for mode in ("frozen", "train"):
        model = cnn(Swap, name=name, batch_norm=mode)
        before = norms_of(model.network), norms_of(model.reduce), norms_of(model.unit)
        step(model)
        after = norms_of(model.network), norms_of(model.reduce), norms_of(model.unit)
        changed = [[k for k in a if not torch.equal(a[k], b[k])] for a, b in zip(before, after)]
        assert len(before[0]) > 50
        assert not changed[0] if mode == "frozen" else len(changed[0]) == len(before[0])
        assert len(changed[1]) == len(changed[2]) == 5


def test_frozen_batch_norms_use_running_statistics_from_the_start() -> None:
    torch.manual_seed(0)
    model = CNN([], "resnet18", "none", multi_grid=None, dim=4, batch_norm="frozen")
    assert model.training and model.reduce[1].training and not model.network.bn1.training
    x = images(2, 3, 32, 32)
    assert torch.equal(model.network(x)[1], model.eval().network(x)[1])


def test_momentum_reaches_every_batch_norm() -> None:
    norms = [m for m in cnn(Swap, bn_momentum=3e-4).modules() if isinstance(m, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {3e-4} and len(norms) == 20 + 1 + 1


def test_published_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From timm's repository, and in torchvision's old form, without counters of batches."""
    asked = []
    torch.manual_seed(3)
    state = timm.create_model("resnet18").state_dict()
    old = {key: value for key, value in state.items() if "num_batches_tracked" not in key}
    save_file(state, tmp_path / "model.safetensors")
    torch.save(old, tmp_path / "old.pth")
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache",
        lambda *words: asked.append(words) or str(tmp_path / "model.safetensors"),
    )
    for weights in ("timm", str(tmp_path / "old.pth")):
        own = cnn(name="resnet18.tv_in1k", weights=weights).network.state_dict()
        assert all(torch.equal(own[key], state[key]) for key in own)
        assert state.keys() - own.keys() == {"fc.weight", "fc.bias"}
    assert asked == [("timm/resnet18.tv_in1k", "model.safetensors")]


@pytest.mark.parametrize(
    "option", ["resnet18", "resnet50", "resnet101", "resnet101s", "mobilenetv2"]
)
def test_the_configs_build_and_name_weights_that_timm_publishes(option: str) -> None:
    content = compose_config([f"backbone={option}"]).backbone
    assert content["weights"] == "timm" and timm.list_pretrained(content["name"])
    kept = {k: v for k, v in content.items() if not k.startswith("_")}
    with torch.device("meta"):
        assert CNN([], **kept | {"weights": "none"}).output_stride == 8
