"""Tokens that lie as a CNN's features give the same numbers, and come out lying as they came."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from oversmoothing.aggregators.base import Aggregator, Context
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.external import External
from oversmoothing.lab.backbones.cnn import Unit

N, C, K = 15, 6, 4
UNITS = [
    lambda: EM(C, K),
    lambda: EM(C, K, step_size=0.5, temperature="sqrt_dim", l2=False, gradients=True),
    lambda: EM(C, K, kernel="distance", gradients=True),
    lambda: External(C, K),
]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def as_features(x: Tensor) -> Tensor:
    """The same numbers, as a view of contiguous (B, C, N)."""
    return x.mT.contiguous().mT


def lies_as(x: Tensor, y: Tensor) -> bool:
    return x.stride() == y.stride()


@pytest.mark.parametrize("make", UNITS)
def test_values_and_gradients_do_not_depend_on_the_layout(
    make: Callable[[], Aggregator],
) -> None:
    torch.manual_seed(0)
    unit, upstream = make().double(), draw(2, N, C).cos()
    results = []
    for lay in (torch.clone, as_features):
        x = lay(draw(2, N, C)).requires_grad_()
        out = unit(x, Context())
        assert lies_as(out, x)
        given = [x, *unit.parameters()] if out.requires_grad else []
        found = torch.autograd.grad(out, given, upstream) if given else ()
        assert not given or lies_as(found[0], x)
        results.append([out, *found])
    for plain, features in zip(*results, strict=True):
        assert torch.allclose(plain, features, rtol=0, atol=1e-13)


@pytest.mark.parametrize("make", UNITS)
def test_a_unit_keeps_the_layout_of_its_features(make: Callable[[], Aggregator]) -> None:
    torch.manual_seed(0)
    unit, x = Unit([make()], C).double().eval(), draw(2, C, 3, 5)
    last = x.to(memory_format=torch.channels_last)
    assert lies_as(unit(x), x) and lies_as(unit(last), last)
    assert torch.allclose(unit(x), unit(last), rtol=0, atol=1e-12)
