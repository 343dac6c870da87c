"""The uniformity loss: its bounds, and ContraNorm as a step along its gradient."""

import pytest
import torch

from oversmoothing.aggregators.base import PLAIN
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.metrics.uniformity import uniformity

N, C = 7, 5


def tokens() -> torch.Tensor:
    return torch.randn(3, N, C, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_contranorm_is_a_step_down_its_gradient(temperature: float) -> None:
    """x − s τ ∇ Σᵢ log Σⱼ exp(xᵢ·xⱼ/τ) is x − s (P + Pᵀ) x, ContraNorm with both terms."""
    x, s = tokens().requires_grad_(), 0.2
    [gradient] = torch.autograd.grad(N * uniformity(x, temperature).sum(), x)
    options = {"identity": False, "dual": True, "printed": True}
    step = ContraNorm(C, scale=s * temperature, temperature=temperature, **options)
    expected = step(x, PLAIN)  # printed: the step is scale/τ
    torch.testing.assert_close(x - s * temperature * gradient, expected, rtol=0, atol=1e-12)


def test_equal_tokens_have_the_highest_value_and_opposite_ones_less() -> None:
    one = torch.nn.functional.normalize(tokens(), dim=-1)
    same = one[:, :1].expand_as(one)
    torch.testing.assert_close(uniformity(same, 0.5), torch.full((3,), 2.0).double())
    both = torch.cat([same, -same], dim=-2)
    assert (uniformity(one, 0.5) < 2.0).all() and (uniformity(both, 0.5) < 2.0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_long_tokens_in_half_precision_are_finite_and_as_exact_as_in_float32(dtype) -> None:
    """300² is above the largest float16."""
    x = (300 * torch.nn.functional.normalize(tokens(), dim=-1)).to(dtype)
    assert torch.equal(uniformity(x), uniformity(x.float()))
    assert uniformity(x).isfinite().all()
