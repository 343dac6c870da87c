"""Laws of external attention, single and in heads, against the papers' formula in float64."""

import pytest
import torch
from tokens import random_tokens
from torch import Tensor

from oversmoothing.aggregators.base import Aggregator, Context
from oversmoothing.aggregators.external import External, double_norm, normalised
from oversmoothing.aggregators.external_multihead import ExternalMultiHead
from oversmoothing.aggregators.self_attention import SelfAttention

N, C, S = 11, 12, 5
BOTH = [External, ExternalMultiHead]


def tokens(n: int = N) -> Tensor:
    return random_tokens(2, n, C)


def build(kind: type[Aggregator], **options: int | str) -> Aggregator:
    torch.manual_seed(1)
    return kind(C, num_slots=S, **options).double()


def reference(scores: Tensor) -> Tensor:
    """exp over its sum over tokens, then over its sum over slots; scores (..., N, S)."""
    weights = scores.exp() / scores.exp().sum(dim=-2, keepdim=True)
    return weights / (1e-9 + weights.sum(dim=-1, keepdim=True))


def test_equals_the_formula() -> None:
    x, external = tokens(), build(External)
    M_k, M_v = external.key.weight, external.value.weight.mT
    expected = reference(x @ M_k.mT) @ M_v
    assert torch.allclose(external(x, Context()), expected, rtol=0, atol=1e-14)


def test_heads_equal_the_formula_head_by_head() -> None:
    x, external = tokens(), build(ExternalMultiHead, num_heads=3, coef=2)
    torch.nn.init.normal_(external.key.bias)
    torch.nn.init.normal_(external.value.bias)
    q, heads = external.query(x), []
    for part in q.split(C // 3, dim=-1):
        attention = reference(part @ external.key.weight.mT + external.key.bias)
        heads.append(attention @ external.value.weight.mT + external.value.bias)
    assert len(heads) == 6
    expected = external.proj(torch.cat(heads, dim=-1))
    assert torch.allclose(external(x, Context()), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", BOTH)
def test_other_norms_are_a_softmax_over_slots_or_nothing(kind: type[Aggregator]) -> None:
    """With memories of one slot: the softmax gives every token M_v, no norm a linear map."""
    torch.manual_seed(1)
    one = kind(C, num_slots=1, norm="softmax").double()
    out = one(tokens(), Context())
    assert torch.allclose(out, out[:, :1].expand_as(out), rtol=0, atol=1e-14)
    linear = build(kind, norm="none")
    at_zero = linear(torch.zeros(2, N, C).double(), Context())
    twice, once = (linear(factor * tokens(), Context()) - at_zero for factor in (2, 1))
    assert torch.allclose(twice, 2 * once, rtol=0, atol=1e-13)


def test_the_double_norm_is_over_tokens_then_slots_a_softmax_with_a_bias_for_each_slot() -> None:
    scores = torch.randn(2, 9, 5, dtype=torch.float64)
    attention = normalised(scores, "tokens")
    torch.testing.assert_close(attention.sum(dim=-2), torch.ones(2, 5).double())
    expected = attention / (1e-9 + attention.sum(dim=-1, keepdim=True))
    torch.testing.assert_close(double_norm(scores), expected, rtol=1e-12, atol=0)
    biased = scores - scores.logsumexp(dim=-2, keepdim=True)
    torch.testing.assert_close(double_norm(scores), biased.softmax(dim=-1), rtol=1e-7, atol=0)


def test_memories_start_equal_and_learn_apart() -> None:
    external = External(512)
    assert torch.equal(external.value.weight, external.key.weight.mT)
    assert external.key.weight.std().item() == pytest.approx(0.0625, rel=0.02)
    with torch.no_grad():
        external.key.weight.zero_()
    assert external.value.weight.abs().sum() > 0


@pytest.mark.parametrize("dim, heads", [(256, 4), (384, 6), (448, 7), (512, 8)])
def test_every_eamlp_has_heads_of_64_and_its_parameters(dim: int, heads: int) -> None:
    """Two linear layers dim to 4 dim and back, and two memories 64 × 64, each with bias."""
    external = ExternalMultiHead(dim)
    assert dim // external.width == heads
    numel = sum(parameter.numel() for parameter in external.parameters())
    assert numel == 2 * 4 * dim * dim + 5 * dim + 2 * (64 * 64 + 64)
    assert dim != 256 or round(numel / 1e6, 3) == 0.534


def test_half_precision_is_normalised_in_full() -> None:
    """Slots that hardly look at any token: their sum is below what float16 holds."""
    scores = torch.zeros(70_000, 1, dtype=torch.float16)
    scores[0] = 11.0
    attention = double_norm(scores)
    assert attention.dtype == torch.float16 and torch.allclose(
        attention[1:], torch.tensor(1.0).half()
    )


HEADS = 3


def attention(norm: str, spread: float = 0.3) -> SelfAttention:
    torch.manual_seed(1)
    unit = SelfAttention(C, HEADS, norm).double()
    for parameter in unit.parameters():
        torch.nn.init.normal_(parameter, std=spread)
    return unit


def test_the_softmax_over_keys_is_timms_attention() -> None:
    theirs = pytest.importorskip("timm.layers").Attention(C, HEADS, qkv_bias=True).double()
    unit = attention("softmax")
    theirs.load_state_dict(unit.state_dict())
    torch.testing.assert_close(unit(tokens()), theirs(tokens()), rtol=0, atol=1e-13)


def test_the_double_norm_equals_the_formula_head_by_head() -> None:
    x, unit = tokens(), attention("double")
    heads = []
    for q, k, v in zip(*(part.split(C // HEADS, -1) for part in unit.qkv(x).chunk(3, -1))):
        weights = (q @ k.mT / (C // HEADS) ** 0.5).exp()
        weights = weights / weights.sum(dim=-2, keepdim=True)  # over the queries
        heads.append(weights / weights.sum(dim=-1, keepdim=True) @ v)
    expected = unit.proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(unit(x), expected, rtol=0, atol=1e-7)  # ε of the sum


def test_initial_weights_are_those_of_timm() -> None:
    torch.manual_seed(0)
    unit = SelfAttention(256)
    for layer in (unit.qkv, unit.proj):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.03)
        assert layer.bias.abs().max() == 0
