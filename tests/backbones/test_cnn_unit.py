"""The unit against its equation in float64, and its tokens."""

import pytest
import torch
import torch.distributed as dist
from small_cnn import Cut, Swap, cnn, images
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.lab.backbones.cnn import Unit, synchronised, unit


def made(*factories: object, dim: int = 12) -> Unit:
    torch.manual_seed(0)
    built = unit(list(factories), dim).double().eval()
    built.norm.running_mean.normal_()
    return built


def features(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


STACKS = [[Swap], [Cut], [LayerNorm], [PairNorm], [Cut, ContraNorm], [LayerNorm, Swap]]


@pytest.mark.parametrize("factories", STACKS)
@torch.no_grad()
def test_it_is_its_equation(factories: list) -> None:
    """x ← relu(x + BN(W₂ σ(A(W₁ x + b₁)))), pixel by pixel; what acts instead acts first."""
    u, x = made(*factories), features(2, 12, 3, 5)
    rows = x.permute(0, 2, 3, 1).reshape(2, 15, 12)
    tokens = rows @ u.conv1.weight[:, :, 0, 0].T + u.conv1.bias
    assert [a.site for a in u.aggregators] == sorted((a.site for a in u.aggregators), reverse=True)
    for aggregator in u.aggregators:
        tokens = aggregator(tokens, Context())
    tokens = tokens.clamp(min=0) if Cut in factories else tokens
    y = tokens @ u.conv2.weight[:, :, 0, 0].T
    y = (y - u.norm.running_mean) / (u.norm.running_var + u.norm.eps).sqrt()
    expected = (rows + y).clamp(min=0).reshape(2, 3, 5, 12).permute(0, 3, 1, 2)
    assert torch.allclose(u(x), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_backbone_gives_it_the_reduced_features() -> None:
    x = images(2, 3, 40, 33)
    plain, model = cnn(), cnn(Swap)
    assert plain.unit is None and cnn(NoAggregator, NoAggregator).unit is None
    assert plain.state_dict().keys() < model.state_dict().keys()
    features, aux = plain(x)
    assert torch.equal(model(x)[0], model.unit(features)) and torch.equal(model(x)[1], aux)


def test_initial_weights_are_emanets() -> None:
    """N(0, √(2/(k·k·c_out))), and a bias as torch draws it: U(±1/√c_in)."""
    u = made(Swap, dim=400)
    for conv in (u.conv1, u.conv2):
        assert conv.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.01)
        assert conv.weight.abs().max() > 4 * (2 / 400) ** 0.5
    assert u.conv1.bias.std().item() == pytest.approx((1 / 3 / 400) ** 0.5, rel=0.1)
    assert u.conv2.bias is None


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2_100"])
@torch.no_grad()
def test_synchronised_batch_norms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch norms are synchronised only on several GPUs; all else stays the same."""
    model = cnn(Swap, name=name, batch_norm="frozen", bn_momentum=0.01)
    expected, keys = model(images(2, 3, 33, 33))[0], model.state_dict().keys()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert synchronised(model) is model
    nccl = "cpu:gloo,cuda:nccl"
    for backend, world, changed in [("gloo", 2, False), (nccl, 1, False), (nccl, 2, True)]:
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_backend_config", lambda b=backend: b)
        monkeypatch.setattr(dist, "get_world_size", lambda w=world: w)
        assert synchronised(model) is model
        norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        assert {isinstance(m, nn.SyncBatchNorm) for m in norms} == {changed}
    assert torch.equal(model(images(2, 3, 33, 33))[0], expected)
    assert model.state_dict().keys() == keys and {m.momentum for m in norms} == {0.01}
    assert all(a is b for a, b in zip(trained, (p for p in model.parameters() if p.requires_grad)))
    model.train()
    assert [m.training for m in norms] == [False] * (len(norms) - 2) + [True] * 2
