"""Laws of centered aggregation, against the explicit N×N matrix in float64."""

import pytest
import torch
from interpreted import use_interpreter
from torch import nn
from torch.autograd import forward_ad

from oversmoothing.aggregators import checks
from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.centered import Centered

N, D = 12, 5


def attention() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, row-stochastic M (2, 3, N, N) and values v (2, 3, N, D)."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, N, N, generator=generator, dtype=torch.float64)
    v = torch.randn(2, 3, N, D, generator=generator, dtype=torch.float64)
    return scores, scores.softmax(dim=-1), v


@pytest.mark.parametrize("prefix", [0, 2, N])
@pytest.mark.parametrize("gamma", [-1.5, -1.0, -0.3, 0.0, 0.7])
def test_equals_the_explicit_matrix(gamma: float, prefix: int) -> None:
    """The mean may leave out prefix tokens, which alone have none; the inputs stay."""
    _, m, v = attention()
    uniform = torch.ones(N, N, dtype=m.dtype) / max(1, N - prefix)
    uniform[:, :prefix] = 0
    mixed = m @ v
    found = Centered(gamma, prefix_in_mean=not prefix)(mixed, v, Context(prefix=prefix))
    assert torch.allclose(found, (m + gamma * uniform) @ v, rtol=0, atol=1e-14)
    assert torch.equal(mixed, m @ v)


def test_a_tensor_of_gammas_equals_one_by_one() -> None:
    _, m, v = attention()
    gammas = torch.tensor([-1.0, 0.25], dtype=m.dtype)
    together = Centered(gammas.view(-1, 1, 1, 1))(m @ v, v, Context())
    for i, gamma in enumerate(gammas.tolist()):
        assert torch.equal(together[i], Centered(gamma)(m[i] @ v[i], v[i], Context()))


def test_row_sums_center_a_mixing_that_is_not_stochastic() -> None:
    m = attention()[1][0, 0] * torch.arange(1.0, N + 1, dtype=torch.float64)[:, None]
    eye = torch.eye(N, dtype=m.dtype)
    context = Context(row_sum=m.sum(dim=-1, keepdim=True))
    assert Centered(-1.0, row_sum=True)(m, eye, context).sum(dim=-1).abs().max() < 1e-13
    assert Centered(-1.0)(m, eye, context).sum(dim=-1).abs().max() > 1


def test_warm_up_reaches_gamma_and_survives_a_checkpoint() -> None:
    _, m, v = attention()
    warm = Centered(-1.0, warmup=10)
    assert torch.equal(warm(m @ v, v, Context()), m @ v)
    for step, share in ((0, 0.0), (5, 0.5), (10, 1.0), (99, 1.0), (3, 0.3)):
        warm.advance(step)
        expected = Centered(-share)(m @ v, v, Context())
        assert torch.allclose(warm(m @ v, v, Context()), expected, atol=1e-15)
    state, cold = warm.state_dict(), Centered()
    cold.load_state_dict(state)
    assert cold.progress == 1.0
    resumed = Centered(-1.0, warmup=10)
    resumed.load_state_dict(state)
    assert resumed.progress == 0.3


def visible() -> torch.Tensor:
    """A mask (2, 1, N, N): causal, and the first image also lacks its first two tokens."""
    mask = torch.ones(N, N, dtype=torch.bool).tril().repeat(2, 1, 1, 1)
    mask[0, ..., :2] = False
    return mask


@pytest.mark.parametrize("prefix", [0, 3])
def test_a_mask_centers_over_the_tokens_that_each_token_sees(prefix: int) -> None:
    """Equals M + γ U with the explicit uniform attention U over the visible tokens."""
    _, m, v = attention()
    seen = visible().double()
    seen[..., :prefix] = 0
    uniform = seen / seen.sum(dim=-1, keepdim=True).clamp(min=1)
    module = Centered(-0.7, prefix_in_mean=not prefix)
    out = module(m @ v, v, Context(prefix=prefix, mask=visible()))
    assert torch.allclose(out, (m - 0.7 * uniform) @ v, rtol=0, atol=1e-14)


@pytest.mark.parametrize("hidden", [None, "left", "right"])
@pytest.mark.parametrize("tokens", [1, 2, N])
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_causal_means_leave_out_prefix_and_padding(
    prefix: int, tokens: int, hidden: str | None
) -> None:
    """Checked for each token; a token that sees no values is not changed."""
    v = attention()[2][..., :tokens, :]
    mask = torch.ones(2, 1, 1, tokens, dtype=torch.bool)
    if hidden:
        mask[0, ..., slice(0, 2) if hidden == "left" else slice(-2, None)] = False
    expected = v.clone()
    for image in range(2):
        for i in range(tokens):
            seen = [j for j in range(prefix, i + 1) if mask[image, 0, 0, j]]
            if seen:
                expected[image, :, i] -= 0.7 * v[image][:, seen].mean(dim=1)
    module = Centered(-0.7, prefix_in_mean=not prefix)
    context = Context(prefix=prefix, mask=mask if hidden else None, causal=True)
    for new in {1, tokens}:
        out = module(v[..., -new:, :].clone(), v, context)
        assert torch.allclose(out, expected[..., -new:, :], rtol=0, atol=1e-14)
    changed = torch.cat([v[..., :-1, :], v[..., -1:, :] + 9], dim=-2)
    again = module(changed.clone(), changed, context)
    assert torch.equal(again[..., :-1, :], module(v.clone(), v, context)[..., :-1, :])


@pytest.mark.parametrize(("value", "dtype"), [(1, torch.bfloat16), (100, torch.float16)])
def test_causal_sums_may_leave_the_range_of_half_precision(value: int, dtype: torch.dtype) -> None:
    """bfloat16 cannot count beyond 256, and float16 ends at 65504."""
    x = torch.full((2000, 1), value, dtype=dtype)
    assert torch.equal(Centered(1.0)(torch.zeros_like(x), x, Context(causal=True)), x)


def test_the_state_without_a_warm_up_is_empty_and_loads_strictly() -> None:
    """So safetensors can save it; earlier states have an entry None."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Centered())
    assert model.state_dict().keys() == {"0.weight", "0.bias"}
    model.load_state_dict(model.state_dict())
    model.load_state_dict({**model.state_dict(), "1._extra_state": None})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_for_gpus_centers(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, on values as attention has them: views of one projection."""
    torch.manual_seed(0)
    _, _, v = torch.randn(2, 600, 3, 2, 20, dtype=dtype).permute(2, 0, 3, 1, 4).unbind(0)
    mixed = torch.randn(2, 600, 2, 20, dtype=dtype).transpose(1, 2)
    both = [x.detach().requires_grad_() for x in (mixed, v)]
    doubles = [x.detach().double().requires_grad_() for x in both]
    exact = Centered(gamma=-0.7)(*doubles)
    use_interpreter(monkeypatch)
    found = Centered(gamma=-0.7)(*both)
    grad, close = torch.randn_like(found), 4 * torch.finfo(dtype).eps
    assert (found - exact).abs().max() <= close
    ours = torch.autograd.grad(found, both, grad)
    for own, other in zip(ours, torch.autograd.grad(exact, doubles, grad.double())):
        assert (own - other).abs().max() <= close


def test_the_kernel_leaves_complex_numbers_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    v = torch.randn(1, 2, 5, 3, dtype=torch.complex64)
    use_interpreter(monkeypatch)
    torch.testing.assert_close(Centered()(v, v), v - v.mean(dim=-2, keepdim=True))


@pytest.mark.filterwarnings("ignore")  # the tracer's
def test_kernels_run_only_on_the_current_gpu_and_outside_of_transforms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Triton launches on the current GPU, so it must not be tried for tensors on another one."""
    tried: list[torch.device] = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(checks, "has_triton", lambda device: tried.append(device) or True)
    x, found = torch.randn(2, 3), []

    def noted(x: torch.Tensor) -> torch.Tensor:
        found.append(checks.runs_triton(x))
        return 2 * x

    noted(x)
    noted(nn.Parameter(x))
    assert found == [True, True]
    torch.jit.trace(noted, x, check_trace=False)
    torch.func.vmap(noted)(x)
    with forward_ad.dual_level():
        noted(forward_ad.make_dual(x, x))
    tried.clear()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    noted(x)
    assert found[2:] == [False] * 4
    assert not tried


@pytest.mark.parametrize("gamma", [-1.5, -1.0, 0.5])
def test_rows_sum_to_one_plus_gamma(gamma: float) -> None:
    """With v = I the output is the mixing matrix itself."""
    _, m, _ = attention()
    eye = torch.eye(N, dtype=m.dtype).expand(2, 3, N, N)
    rows = Centered(gamma)(m @ eye, eye, Context()).sum(dim=-1)
    assert torch.allclose(rows, torch.full_like(rows, 1 + gamma), atol=1e-14)
