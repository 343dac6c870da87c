"""Rates and groups of parameters of every recipe, against timm and the papers' code."""

import pytest
import torch
from timm.scheduler import CosineLRScheduler
from torch import nn

from oversmoothing.errors import InputError
from oversmoothing.lab.training.recipes import AdamWCosine, AdamWLinear, AdamWPoly, Recipe, SGDPoly


def test_the_cosine_is_that_of_deits_scheduler_stepped_every_iteration() -> None:
    trainer = AdamWCosine(iterations=40, batch_size=2, warmup=5, lr=1e-3)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-3)
    own = {"t_initial": 40, "lr_min": 1e-5, "warmup_t": 5, "warmup_lr_init": 1e-6}
    reference = CosineLRScheduler(optimizer, **own)
    for step in range(40):
        reference.step(step)
        assert 1e-3 * trainer.factor(step) == pytest.approx(optimizer.param_groups[0]["lr"])


def test_tocos_rate_warms_up_and_falls_by_a_power() -> None:
    trainer = AdamWPoly()
    assert trainer.factor(0) == pytest.approx(1e-6)
    assert trainer.factor(750) == pytest.approx(0.5, abs=1e-6)
    assert 6e-5 * trainer.factor(1500) == pytest.approx(5.59e-5, abs=1e-7)  # drops, as ToCo's
    assert trainer.factor(19_999) == pytest.approx((1 / 20_000) ** 0.9)


def test_emanets_rate_warms_up_and_falls_in_steps() -> None:
    trainer = SGDPoly(iterations=1000, warmup=4, hold=10)
    assert [trainer.factor(s) for s in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    for step in (10, 15, 19):
        assert trainer.factor(step) == pytest.approx(0.99**0.9)
    assert trainer.factor(999) == pytest.approx(0.01**0.9)


def test_berts_rate_rises_and_falls_linearly_over_its_epochs() -> None:
    trainer = AdamWLinear(iterations=10, epochs=None, warmup=2)
    factors = [trainer.factor(step) for step in range(10)]
    assert factors == pytest.approx([0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert AdamWLinear(epochs=5.0, batch_size=32).over(2490).iterations == round(5 * 2490 / 32)
    with pytest.raises(InputError, match=r"trainer\.warmup: expected below"):
        AdamWLinear(epochs=1.0, warmup=50).over(100)
    with pytest.warns(UserWarning, match="trainer.iterations=7 has no effect"):
        assert AdamWLinear(iterations=7, epochs=1.0).over(320).iterations == 10


class Network(nn.Module):
    """A pretrained convolution with its norm, a new head, embeddings and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.old, self.norm, self.head = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)
        self.pos_embed = nn.Parameter(torch.ones(1, 4, 2))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)

    def pretrained_parts(self) -> list[nn.Module]:
        return [self.old, self.norm]

    def parameter_groups(self, lr: float, head_factor: float) -> list[dict]:
        return [{"params": [self.old.weight], "lr": lr}, {"params": [self.norm.weight], "lr": 1}]


def rates(recipe: Recipe, network: nn.Module) -> dict[str, tuple[float, float]]:
    """Returns rate and weight decay of every trained parameter, each of which is there once."""
    groups = recipe.optimizer(network).param_groups
    found = [(id(p), (g["lr"], g["weight_decay"])) for g in groups for p in g["params"]]
    assert len(found) == len(dict(found))
    names = {id(p): name for name, p in network.named_parameters()}
    return {names[key]: pytest.approx(own) for key, own in found}


def test_every_parameter_has_its_rate_and_decay() -> None:
    own = {"lr": 0.1, "head_factor": 10.0, "bias_factor": 2.0, "norm_bias_factor": 3.0}
    assert rates(SGDPoly(**own, weight_decay=0.01), Network()) == {
        "old.weight": (0.1, 0.01),
        "old.bias": (0.2, 0),
        "norm.weight": (0.1, 0),
        "norm.bias": (0.3, 0),
        "head.weight": (1, 0.01),
        "head.bias": (2, 0),
        "pos_embed": (1, 0.01),
    }
    matrices = {"old.weight", "head.weight"}
    for recipe, decayed in ((AdamWCosine, matrices), (AdamWLinear, {*matrices, "pos_embed"})):
        found = rates(recipe(lr=0.1, weight_decay=0.05), Network())
        trained = {name for name, p in Network().named_parameters() if p.requires_grad}
        assert found == {name: (0.1, 0.05 * (name in decayed)) for name in trained}
    every = rates(AdamWPoly(lr=0.1), Network())
    assert every == {"old.weight": (0.1, 0.01), "norm.weight": (1, 0.01)}


@pytest.mark.parametrize("recipe", [AdamWPoly, AdamWCosine, SGDPoly])
def test_a_training_that_never_reaches_its_rate_is_refused(recipe: type[Recipe]) -> None:
    with pytest.raises(InputError, match=r"trainer\.warmup: expected below .*30, got 30"):
        recipe(iterations=30, warmup=30)
    recipe(iterations=31, warmup=30)


@pytest.mark.parametrize(
    "key, value",
    [
        ("iterations", 0),
        ("batch_size", 0),
        ("lr", 0.0),
        ("warmup", -1),
        ("min_lr", 1.0),
        ("betas", [0.9]),
        ("eps", -1),
    ],
)
def test_values_out_of_range_are_named(key: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"trainer\.{key}: expected"):
        AdamWCosine(**{key: value})
