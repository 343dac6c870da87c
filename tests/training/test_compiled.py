"""What ``trainer.compile`` compiles, and for how long."""

import pytest
import torch
from torch import Tensor, nn

from oversmoothing.training.compiled import compiled


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
