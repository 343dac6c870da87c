"""What ``trainer.compile`` compiles, and for how long."""

import functools

import pytest
import torch
from torch import Tensor, nn

from oversmoothing.lab.training.loop import compiled


class Backbone(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Network(nn.Module):
    """As the networks of the tasks: more than one method runs the backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone(x)

    def class_maps(self, x: Tensor) -> Tensor:
        return self.backbone(x)


def test_every_way_to_the_backbone_is_compiled_until_the_training_ends(monkeypatch) -> None:
    calls, network, x = [], Network(), torch.ones(2)
    monkeypatch.setattr(torch, "compile", lambda f: lambda *a: calls.append(1) or f(*a))
    with pytest.raises(KeyError), compiled(network):
        assert torch.equal(network(x), 2 * x) and torch.equal(network.class_maps(x), 2 * x)
        assert len(calls) == 2
        raise KeyError
    assert torch.equal(network(x), 2 * x) and len(calls) == 2
    with compiled(network, wanted=False):
        assert torch.equal(network(x), 2 * x) and len(calls) == 2


class Drawing(Backbone):
    uncompiled = ("draw",)
    compiled = None

    def draw(self) -> None:
        self.compiled = torch.compiler.is_compiling()

    def forward(self, x: Tensor) -> Tensor:
        self.draw()
        return 2 * x


def test_methods_that_cannot_be_compiled_are_left_out(monkeypatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    backbone, x = Drawing(), torch.ones(2)
    with compiled(backbone):
        assert torch.equal(backbone(x), 2 * x) and backbone.compiled is False
    assert "draw" not in vars(backbone) and "forward" not in vars(backbone)
    backbone.uncompiled = ()
    with compiled(backbone):
        assert torch.equal(backbone(x), 2 * x) and backbone.compiled is True
