"""Laws of self-attention with a choice of norm, against timm and the formula in float64."""

import pytest
import torch
from torch import Tensor

from oversmoothing.aggregators.self_attention import SelfAttention
from oversmoothing.errors import InputError

N, C, HEADS = 9, 12, 3


def tokens() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, N, C, generator=generator, dtype=torch.float64)


def build(norm: str, spread: float = 0.3) -> SelfAttention:
    torch.manual_seed(1)
    unit = SelfAttention(C, HEADS, norm).double()
    for parameter in unit.parameters():
        torch.nn.init.normal_(parameter, std=spread)
    return unit


def test_the_softmax_over_keys_is_timms_attention() -> None:
    attention = pytest.importorskip("timm.layers").Attention(C, HEADS, qkv_bias=True).double()
    unit = build("softmax")
    attention.load_state_dict(unit.state_dict())
    torch.testing.assert_close(unit(tokens()), attention(tokens()), rtol=0, atol=1e-13)


def test_the_double_norm_equals_the_formula_head_by_head() -> None:
    x, unit = tokens(), build("double")
    heads = []
    for q, k, v in zip(*(part.split(C // HEADS, -1) for part in unit.qkv(x).chunk(3, -1))):
        weights = (q @ k.mT / (C // HEADS) ** 0.5).exp()
        weights = weights / weights.sum(dim=-2, keepdim=True)  # over the queries
        heads.append(weights / weights.sum(dim=-1, keepdim=True) @ v)
    expected = unit.proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(unit(x), expected, rtol=0, atol=1e-7)  # ε of the sum


def test_the_double_norm_ignores_what_all_queries_share() -> None:
    """The bias of the queries adds the same to all scores of a key; a softmax over keys sees it."""
    for norm, same in (("double", True), ("softmax", False)):
        unit = build(norm)
        before = unit(tokens())
        with torch.no_grad():
            unit.qkv.bias[:C] += 1.0
        assert torch.allclose(unit(tokens()), before, rtol=0, atol=1e-8) == same


@pytest.mark.parametrize("heads", [0, 5])  # 5 does not divide the channels
def test_heads_out_of_range_are_named(heads: int) -> None:
    with pytest.raises(InputError, match=r"^aggregator\.num_heads: "):
        SelfAttention(C, heads)
    with pytest.raises(InputError, match=r"aggregator\.norm"):
        SelfAttention(C, norm="l1")


def test_initial_weights_are_those_of_timm() -> None:
    torch.manual_seed(0)
    unit = SelfAttention(256)
    for layer in (unit.qkv, unit.proj):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.03)
        assert layer.bias.abs().max() == 0
