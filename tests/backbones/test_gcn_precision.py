"""Graph networks in other types, in files, and under a second derivative."""

import io
from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest
import small_gcn
import torch
from torch import Tensor

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.lab.backbones.engine import Engine

KINDS = ["gcn", "gcnii", "jknet-cat", "symmetric", "graphcon", "g2"]
CASES = [*((kind, True) for kind in KINDS), ("gcn", False), ("gcnii", False)]
every_kind = pytest.mark.parametrize(("kind", "sparse"), CASES)


def network(kind: str, sparse: bool, *aggregators: object, **options) -> Engine:
    options = {"depth": 4, "hidden": 8, "init": "glorot"} | options
    return small_gcn.network(kind, *aggregators, seeds=(0, 1), sparse=sparse, **options)


def gradients(model: Engine, graph: bool = False) -> list[Tensor]:
    loss = model().logsumexp(dim=-1).square().mean()
    return list(torch.autograd.grad(loss, [*model.parameters()], create_graph=graph))


@every_kind
def test_hessian_vector_products_are_differences_of_gradients(
    kind: str, sparse: bool, double: None
) -> None:
    model = network(kind, sparse, partial(Centered, gamma=-0.5)).eval()
    parameters = [*model.parameters()]
    torch.manual_seed(0)
    direction = [torch.randn_like(p) for p in parameters]
    along = sum((g * d).sum() for g, d in zip(gradients(model, graph=True), direction))
    found = torch.autograd.grad(along, parameters, materialize_grads=True)
    ends = []
    for step in (1e-6, -2e-6):  # to one side, then to the other; small, as ReLUs have kinks
        for p, d in zip(parameters, direction):
            p.data.add_(d, alpha=step)
        ends.append(gradients(model))
    for ours, ahead, behind in zip(found, *ends):
        torch.testing.assert_close(ours, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-7)


def saved(model: Engine) -> Engine:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@every_kind
@pytest.mark.parametrize("again", [saved, deepcopy])
def test_a_network_from_a_file_or_a_copy_goes_on_as_the_first_one(
    again: Callable[[Engine], Engine], kind: str, sparse: bool
) -> None:
    """After a training step, with dropout, dropped edges and all aggregators."""
    model = network(kind, sparse, Centered, ContraNorm, LayerNorm)
    gradients(model)
    copy = again(model)
    assert all(map(torch.equal, gradients(copy), gradients(model)))


@every_kind
def test_a_network_cast_to_double_computes_in_double(kind: str, sparse: bool) -> None:
    model = network(kind, sparse, Centered, LayerNorm, dropout=0.25)
    wide = deepcopy(model).double()
    logits = wide()
    assert logits.dtype == torch.float64 and not torch.equal(logits, logits.float().double())
    torch.testing.assert_close(logits.float(), model(), rtol=1e-4, atol=1e-5)
    for found, expected in zip(gradients(wide), gradients(model)):
        torch.testing.assert_close(found.float(), expected, rtol=1e-3, atol=1e-5)


@every_kind
def test_autocast_to_bf16_is_within_its_rounding(kind: str, sparse: bool) -> None:
    """Logits and gradients; the backward pass may be outside of autocast, as PyTorch advises."""
    model = network(kind, sparse, Centered, partial(ContraNorm, scale=0.3), LayerNorm)
    same, parameters = deepcopy(model), [*model.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        logits = model()
    grads = torch.autograd.grad(logits.float().logsumexp(dim=-1).square().mean(), parameters)
    exact = deepcopy(same)()
    assert 1e-4 < (logits - exact).norm() / exact.norm() < 0.03
    assert all(found.dtype == p.dtype for found, p in zip(grads, parameters))
    found, expected = (torch.cat([g.flatten() for g in own]) for own in (grads, gradients(same)))
    assert (found - expected).norm() < 0.4 * expected.norm()  # some ReLUs open or close
