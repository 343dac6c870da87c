"""Cosine decay with warm-up: its rates against timm's scheduler, and what decays."""

import pytest
import torch
from timm.scheduler import CosineLRScheduler
from torch import nn

from oversmoothing.errors import InputError
from oversmoothing.lab.training.recipes import AdamWCosine

RECIPE = {"iterations": 40, "batch_size": 2, "warmup": 5, "lr": 1e-3}


def test_rates_are_those_of_deits_scheduler_stepped_every_iteration() -> None:
    trainer = AdamWCosine(**RECIPE)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-3)
    reference = CosineLRScheduler(
        optimizer, t_initial=40, lr_min=1e-5, warmup_t=5, warmup_lr_init=1e-6
    )
    for step in range(40):
        reference.step(step)
        assert 1e-3 * trainer.factor(step) == pytest.approx(optimizer.param_groups[0]["lr"])


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.ones(1, 4, 2))
        self.cls_token = nn.Parameter(torch.ones(1, 1, 2))
        self.linear = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_only_weights_decay_and_every_trained_parameter_is_there_once() -> None:
    network = Network()
    optimizer = AdamWCosine(**RECIPE).optimizer(network)
    decayed, others = (group["params"] for group in optimizer.param_groups)
    assert [id(p) for p in decayed] == [id(network.linear.weight)]
    trained = {id(p) for p in network.parameters() if p.requires_grad}
    assert {id(p) for p in others} == trained - {id(network.linear.weight)}
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.05, 0.0]


@pytest.mark.parametrize(
    "option, said",
    [
        ({"min_lr": 1.0}, r"trainer\.warmup_lr, \.min_lr: expected at most trainer\.lr, 0\.001"),
        ({"warmup": -1}, r"trainer\.warmup: expected 0 or more"),
        ({"batch_size": 0}, r"trainer\.batch_size: expected 1 or more"),
    ],
)
def test_values_out_of_range_are_refused(option: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        AdamWCosine(**{**RECIPE, **option})
