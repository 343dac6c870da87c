"""EMANet's schedule, and its groups of parameters."""

import pytest
from torch import nn

from oversmoothing.lab.training.recipes import SGDPoly


class Network(nn.Module):
    """A pretrained convolution with its norm, and a new head."""

    def __init__(self) -> None:
        super().__init__()
        self.old, self.norm, self.head = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)

    def pretrained_parts(self) -> list[nn.Module]:
        return [self.old, self.norm]


def test_the_rate_warms_up_and_falls_in_steps() -> None:
    trainer = SGDPoly(iterations=1000, warmup=4, hold=10)
    assert [trainer.factor(s) for s in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    for step in (10, 15, 19):
        assert trainer.factor(step) == pytest.approx(0.99**0.9)
    assert trainer.factor(999) == pytest.approx(0.01**0.9)


def test_every_parameter_has_its_rate_and_decay() -> None:
    network = Network()
    trainer = SGDPoly(
        lr=0.1, head_factor=10.0, bias_factor=2.0, norm_bias_factor=3.0, weight_decay=0.01
    )
    groups = trainer.optimizer(network).param_groups
    found = {p: (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    old, norm, head = network.old, network.norm, network.head
    expected = {
        old.weight: (0.1, 0.01),
        old.bias: (0.2, 0),
        norm.weight: (0.1, 0),
        norm.bias: (0.3, 0),
        head.weight: (1, 0.01),
        head.bias: (2, 0),
    }
    assert found == {p: pytest.approx(own) for p, own in expected.items()}
