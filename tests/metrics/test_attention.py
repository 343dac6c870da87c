"""Similarity of attention maps against its definition."""

import math
from functools import partial

import pytest
import torch
from tokens import random_tokens
from torch import Tensor

from oversmoothing.aggregators.base import PLAIN
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.metrics import attention
from oversmoothing.metrics.attention import attention_similarity
from oversmoothing.metrics.uniformity import uniformity


def softmax_maps(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=dtype).softmax(dim=-1)


def test_it_is_the_mean_cosine_of_the_rows() -> None:
    A = softmax_maps(2, 3, 5, 5)
    for image, measured in zip(A.double(), attention_similarity(A)):
        rows = [[head[i] / head[i].norm() for i in range(5)] for head in image]
        pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
        cosines = [sum(float(r[i] @ r[j]) for i, j in pairs) / len(pairs) for r in rows]
        assert measured.item() == pytest.approx(sum(cosines) / 3, abs=1e-12)
    assert measured.dtype == torch.float64


def test_known_maps_in_any_order_of_the_tokens() -> None:
    alike = softmax_maps(1, 2, 1, 6).expand(1, 2, 6, 6)
    assert attention_similarity(alike).item() == pytest.approx(1, abs=1e-6)
    assert attention_similarity(torch.eye(6)[None, None]).item() == 0
    one = torch.tensor([[1.0, 0.0], [0.0, 0.0]])  # a row of zeros has no direction
    assert attention_similarity(one[None, None]).item() == 0
    A, order = softmax_maps(2, 3, 6, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = A[..., order, :][..., order]
    assert torch.allclose(
        attention_similarity(shuffled), attention_similarity(A), rtol=0, atol=1e-12
    )
    A[0, 1, 1, 1] = math.nan
    for measure in (attention_similarity, attention.attention_gap):
        assert measure(A).isnan().tolist() == [True, False]


def test_entropy_sink_gap_and_cosine_of_two_layers() -> None:
    A, uniform = softmax_maps(2, 3, 5, 5), torch.full((1, 2, 5, 5), 0.2)
    entropy = -(A * A.log()).sum(-1).mean((1, 2)) / math.log(5)
    assert torch.allclose(attention.attention_entropy(A), entropy.double(), atol=1e-6)
    assert attention.attention_entropy(uniform).item() == pytest.approx(1)
    eye = torch.eye(5)[None, None]
    assert attention.attention_entropy(eye).item() == pytest.approx(0, abs=1e-9)
    first = torch.zeros(1, 1, 5, 5).index_fill_(-1, torch.tensor([0]), 1.0)
    assert [attention.attention_sink(M).item() for M in (first, eye)] == pytest.approx([1, 0.2])
    sigma = torch.linalg.svdvals(A)
    expected = (sigma[..., 0] / sigma[..., 1]).mean(1)
    assert torch.allclose(attention.attention_gap(A).float(), expected, rtol=1e-4)
    assert attention.attention_gap(torch.ones(2, 3, 1, 1)).isnan().tolist() == [True, True]
    assert attention.attention_cosine(A, 3 * A).tolist() == pytest.approx([1, 1])


N, C = 7, 5


tokens = partial(random_tokens, 3, N, C)


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
