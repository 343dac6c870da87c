"""Kernels for GPUs, in Triton's interpreter, compute what torch computes on the CPU."""

import json
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import small_gcn
import torch
import torch.nn.functional as F
from interpreted import use_interpreter
from small_runs import words
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.lab.backbones.sparse import SparseMatrix
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder

S, N = 2, 75  # N is no multiple of a program's rows
NETWORKS = {
    "centered": ["aggregator=centered", "backbone.dropout=0.5", "backbone.drop_edge=0.3"],
    "contranorm": ["aggregator=contranorm", "aggregator.scale=0.5", "backbone.dropout=0"],
}
SHORT = ["trainer.epochs=2", "trainer.eval_every=2", "seeds=[0,1]"]
SMALL = ["data.num_nodes=75", "data.train_per_class=5", "data.num_val=20", "backbone.depth=2"]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch):
    use_interpreter(monkeypatch)
    from oversmoothing.lab.backbones import kernels

    return kernels


def near(found: Tensor, exact: Tensor) -> None:
    assert (found.double() - exact).norm() <= 1e-5 * exact.norm()


def agree(found: Tensor, exact: Tensor, inputs: list[Tensor], doubles: list[Tensor]) -> None:
    """Compares values and gradients with those in float64."""
    near(found, exact)
    grad = torch.randn_like(found)
    ours = torch.autograd.grad(found, inputs, grad)
    for own, other in zip(ours, torch.autograd.grad(exact, doubles, grad.double())):
        near(own, other)


def drawn(*shapes: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Draws tensors with gradients, in float32 and in float64."""
    torch.manual_seed(0)
    found = [torch.randn(shape, requires_grad=True) for shape in shapes]
    return found, [own.detach().double().requires_grad_() for own in found]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_training_with_kernels_has_the_losses_of_one_without(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses(name: str) -> list[float]:
        more = [*SHORT, *SMALL, "matmul=highest", "aggregator@then=layernorm", *NETWORKS[network]]
        config = compose_config(words("nodes", tmp_path / name, *more))
        execute(config)
        lines = [*run_folder(config).glob("s*/metrics.jsonl")][0].read_text().splitlines()
        return [value for line in lines for value in json.loads(line).get("train_loss", [])]

    plain = losses("plain")
    use_interpreter(monkeypatch)
    assert losses("kernels") == pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize("channels", [5, 70])
def test_sparse_products_of_long_short_and_empty_rows(
    kernels, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "LONG", 9)
    full = (torch.rand(S, N, N) < 0.03) * torch.rand(S, N, N)
    full[:, 3], full[:, 4] = 1.0, 0.0
    edges = full.ne(0).any(dim=0).nonzero().T
    product = SparseMatrix(edges, (N, N), S).prepared(full[:, edges[0], edges[1]])
    for shape in ((1, 1, channels), (S, 1, channels), (S, N, channels)):
        (v, plus), doubles = drawn((S, N, channels), shape)
        exact = full.double() @ doubles[0] + doubles[1]
        agree(product(v, plus), exact, [v, plus], doubles)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of rows beyond the last, if eps is 0
@pytest.mark.parametrize("channels", [7, 300])
def test_layer_norms_of_each_seed(kernels, channels: int) -> None:
    shape = (S, 1, channels)
    (x, *affine), (exact, scale, shift) = drawn((S, N, channels), shape, shape)
    plain = F.layer_norm(exact, (channels,), eps=1e-5)
    agree(kernels.LayerNorms.apply(x, 1e-5, None, None), plain, [x], [exact])
    learned = F.layer_norm(exact, (channels,), eps=0) * scale + shift
    found = kernels.LayerNorms.apply(x, 0.0, *affine)
    agree(found, learned, [x, *affine], [exact, scale, shift])


@pytest.mark.parametrize("masked", [False, True])
def test_relu_dropout_and_product(kernels, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    both, doubles = drawn((S, N, 20), (S, 20, 3))
    mask = torch.rand(S, N + 1, 20)[:, 1:] < 0.5 if masked else None  # seeds lie apart
    h = doubles[0].relu() if mask is None else doubles[0].relu() * mask
    found = kernels.ReluDropoutTimes.apply(both[0], mask, both[1], 2.5)
    agree(found, 2.5 * h @ doubles[1], both, doubles)


def test_a_feature_that_is_not_a_number_stays_so(kernels) -> None:
    (x, weight), _ = drawn((S, N, 4), (S, 4, 3))
    x.data[1, 2, 3] = torch.nan
    found = kernels.ReluDropoutTimes.apply(x, None, weight, 1.0)
    dW = torch.autograd.grad(found[:, :5].sum(), weight)[0]
    assert found.isnan().nonzero().tolist() == [[1, 2, k] for k in range(3)]
    assert dW.isnan().nonzero().tolist() == [[1, 3, k] for k in range(3)]


def test_second_derivatives(kernels) -> None:
    def second(model: torch.nn.Module) -> list[Tensor]:
        parameters, loss = [*model.parameters()], model().logsumexp(dim=-1).square().mean()
        first = torch.autograd.grad(loss, parameters, create_graph=True)
        return torch.autograd.grad(sum(own.square().sum() for own in first), parameters)

    model = small_gcn.network(seeds=(0, 1), depth=3, hidden=8, dropout=0.5, init="glorot")
    model.eval()
    for own, other in zip(second(model), second(deepcopy(model).double())):
        near(own, other)


@pytest.mark.parametrize(
    ("aggregator", "interpreted"),
    [(LayerNorm, False), (LayerNorm, True), (partial(ContraNorm, scale=0.3), True)],
)
def test_second_derivatives_that_do_not_exist_are_refused(
    aggregator: object, interpreted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_gcn.network("gcn", aggregator, depth=3, hidden=8)
    if interpreted:
        use_interpreter(monkeypatch)
    weights, loss = [*model.weights], model().logsumexp(dim=-1).square().mean()
    first = torch.autograd.grad(loss, weights, create_graph=True)
    with pytest.raises(NotImplementedError):
        torch.autograd.grad(first[0].sum(), weights)


@pytest.mark.parametrize("dual", [False, True])
def test_contranorm_among_non_neighbours(dual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    pairs = torch.randint(N, (2, 300))
    edges = torch.cat([pairs, pairs.flip(0), torch.arange(N).expand(2, -1)], dim=1).unique(dim=1)
    context = Context(edges=edges, num_nodes=N)
    norm = ContraNorm(20, scale=0.7, temperature=0.5, dual=dual)
    [x], [double] = drawn((S, N, 20))
    exact = norm(double, context)
    use_interpreter(monkeypatch)
    agree(norm(x, context), exact, [x], [double])
