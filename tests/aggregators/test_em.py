"""Laws of EM and HEM attention: the papers' equations, gradients, and the moving average."""

import copy
import math
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import by_two, without_error
from tokens import random_tokens
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from oversmoothing.aggregators.base import Context, settle
from oversmoothing.aggregators.em import EM
from oversmoothing.errors import InputError
from oversmoothing.lab.papers.hemnet_fig3 import input_gradients, recording
from oversmoothing.lab.processes import close

N, C, K = 30, 6, 4
HEM = {"step_size": 0.5, "temperature": "sqrt_dim", "l2": False, "gradients": True}
PRESETS = {"EMANet": {}, "HEM": HEM, "EM with gradients": HEM | {"step_size": 1.0}}


def tokens(*lead: int, seed: int = 0, n: int = N) -> Tensor:
    return random_tokens(*lead, n, C, seed=seed)


def build(**options: object) -> EM:
    torch.manual_seed(1)
    return EM(C, **{"num_bases": K, **options}).double()


def reference(x: Tensor, mu: Tensor, T: int, step: float, variance: float, l2: bool) -> Tensor:
    """HEMNet's Eq. 8, 13 and 10 for one sample, token by token and basis by basis."""
    for _ in range(T):
        gamma = torch.zeros(N, K, dtype=x.dtype)
        for n in range(N):
            weights = [math.exp(float(x[n] @ mu[k]) / variance) for k in range(K)]
            gamma[n] = torch.tensor(weights, dtype=x.dtype) / sum(weights)
        rows = []
        for k in range(K):
            mean = sum(gamma[n, k] * x[n] for n in range(N)) / (1e-6 + gamma[:, k].sum())
            row = (1 - step) * mu[k] + step * mean
            rows.append(row / (1e-6 + row.norm()) if l2 else row)
        mu = torch.stack(rows)
    return torch.stack([sum(gamma[n, k] * mu[k] for k in range(K)) for n in range(N)])


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("preset", PRESETS)
def test_equals_the_equations_sample_by_sample(preset: str, T: int) -> None:
    x, em = tokens(2), build(iterations=T, **PRESETS[preset])
    options = (em.step_size, 1.0 if preset == "EMANet" else C**0.5, em.l2)
    expected = torch.stack([reference(one, em.bases, T, *options) for one in x])
    assert torch.allclose(em(x, Context()), expected, rtol=0, atol=1e-12)


def test_the_distance_form_is_the_posterior_of_its_gaussians() -> None:
    x, em = tokens(), build(kernel="distance", temperature=0.7)
    em.bases.mul_(torch.tensor([0.5, 1.0, 2.0, 3.0])[:, None])  # with one norm, ‖μ‖² cancels
    density = torch.exp(-torch.cdist(x, em.bases).square() / (2 * 0.7))
    [first] = em.trace(x, 1)
    assert torch.allclose(first.gamma, density / density.sum(dim=1, keepdim=True), atol=1e-13)


def test_evaluation_has_its_own_number_of_iterations_and_moves_nothing() -> None:
    x, one = tokens(), build(iterations=1, eval_iterations=5)(tokens(), Context())
    em = build(iterations=1, eval_iterations=5).eval()
    start = em.bases.clone()
    assert torch.equal(em(x, Context()), build(iterations=5).eval()(x, Context()))
    assert len(em.trace(x)) == 5 and not torch.allclose(em(x, Context()), one, atol=1e-3)
    with torch.no_grad():
        em.train()(x, Context())
    settle(em)
    assert torch.equal(em.bases, start)


@pytest.mark.parametrize("preset", ["HEM", "EM with gradients"])
def test_the_gradient_is_that_of_the_equations(preset: str) -> None:
    x, em = tokens(seed=2).requires_grad_(), build(iterations=2, **PRESETS[preset])
    assert em.passes_gradient
    assert torch.autograd.gradcheck(lambda y: em(y, Context()), x)


def test_emanets_preset_passes_no_gradient_and_says_so() -> None:
    x, em = tokens(2).requires_grad_(), build()
    assert not em.passes_gradient and not em(x, Context()).requires_grad
    with recording(em) as iterations:
        (em(x, Context()) + x).sum().backward()  # the host's residual is the way to x
    assert input_gradients(iterations) == {"n_steps": [0.0] * 3, "e_steps": [0.0] * 3, "total": 0.0}


def test_recorded_gradients_are_those_of_each_step_and_add_up() -> None:
    x, em = tokens(2).requires_grad_(), build(**HEM)
    weight = tokens(2, seed=5)
    with recording(em) as iterations:
        (em(x, Context()) * weight).sum().backward()
    through = [step for i in iterations for step in (i.x_n.grad, i.x_e.grad)]
    assert all(gradient.abs().sum() > 0 for gradient in through)
    assert torch.allclose(sum(through), x.grad, atol=1e-14)
    found = input_gradients(iterations)
    assert found["total"] == pytest.approx(x.grad.abs().mean().item())
    last = iterations[-1]  # ∂L/∂μ⁽ᵀ⁾ η γ/N_k, the N-step's term of Eq. 17
    shares = last.gamma / (1e-6 + last.gamma.sum(dim=-2, keepdim=True))
    term = 0.5 * shares @ (last.gamma.mT @ weight)
    assert found["n_steps"][-1] == pytest.approx(term.abs().mean().item())
    assert "e_step" not in vars(em)


def test_half_precision_outside_full_precision_inside() -> None:
    x, em = tokens(2).float(), build(**HEM).float()
    full = em(x.bfloat16().float(), Context())
    with torch.autocast("cpu", torch.bfloat16):
        half = em(x.bfloat16(), Context())
    assert half.dtype == torch.bfloat16 and torch.equal(half, full.bfloat16())


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_bases_move_towards_the_mean_over_samples(lead: tuple[int, ...]) -> None:
    x, em = tokens(*lead), build(momentum=0.75, **HEM)
    start = em.bases.clone()
    mean = em.trace(x)[-1].mu.reshape(-1, K, C).mean(dim=0)
    em(x, Context())
    assert torch.equal(em.bases, start)
    settle(em)
    assert torch.allclose(em.bases, 0.75 * start + 0.25 * mean, atol=1e-14)
    moved = em.bases.clone()
    settle(em)
    assert torch.equal(em.bases, moved)


def test_unequal_parts_of_a_batch_move_bases_as_the_whole_does() -> None:
    x, whole = tokens(5), build()
    parts = copy.deepcopy(whole)
    whole(x, Context())
    for part in x.split([2, 3]):
        parts(part, Context())
    settle(whole)
    settle(parts)
    assert torch.allclose(parts.bases, whole.bases, atol=1e-14)


def test_a_checkpoint_between_two_parts_loses_nothing(tmp_path: Path) -> None:
    """The state is tensors, which keep no graph."""
    em, x = build(**HEM), tokens(4).requires_grad_()
    em(x[:2], Context())
    assert not em.pending.requires_grad
    torch.save(em.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert all(isinstance(value, Tensor) for value in state.values())
    resumed = EM(C, K, **HEM).double()
    resumed.load_state_dict(state)
    for one in (em, resumed):
        one(x[2:], Context())
        settle(one)
    assert torch.equal(em.bases, resumed.bases)


def test_more_bases_than_tokens_are_refused_in_training() -> None:
    assert build(num_bases=N)(tokens(2), Context()).isfinite().all()
    em = build(num_bases=N + 1)
    with pytest.raises(InputError, match=r"^aggregator\.num_bases: "):
        em(tokens(2), Context())
    assert em.eval()(tokens(2), Context()).isfinite().all()  # a small image at a small scale


def test_the_moving_average_in_half_precision_counts_all_samples() -> None:
    """bfloat16 cannot count beyond 256."""
    torch.manual_seed(0)
    parts = torch.randn(600, 1, 12, 8)
    layers = [EM(8, num_bases=3, momentum=0.0) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[1].bfloat16()
    for layer in layers:
        for part in parts:
            layer(part.to(layer.bases.dtype))
        layer.settle()
    exact, half = (layer.bases.float() for layer in layers)
    assert (exact - half).norm() < 0.02 * exact.norm()


class Host(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.em = nn.Linear(C, C), build(**HEM)

    def forward(self, x: Tensor) -> Tensor:
        return self.em(self.conv(x), Context())


def of_a_process(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(0)
    host, x, alone = Host().double(), tokens(6), build(**HEM)
    alone.bases.copy_(host.em.bases)
    mean = alone.trace(host.conv(x).detach())[-1].mu.mean(dim=0)
    expected = alone.momentum * alone.bases + (1 - alone.momentum) * mean
    model = DistributedDataParallel(host)
    for part in ([[0], [1, 2]], [[3], [4, 5]])[rank]:  # two forward passes each, of unequal size
        model(x[part])
    settle(model)
    assert torch.allclose(host.em.bases, expected, atol=1e-14), (host.em.bases - expected).abs()
    del model
    close()


def test_two_processes_move_bases_as_one_does(tmp_path: Path) -> None:
    without_error(by_two(of_a_process, tmp_path))
