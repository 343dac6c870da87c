"""Attention with aggregators against the explicit N×N matrix, and the three sites."""

from unittest.mock import Mock

import pytest
import torch
from small_vit import DISTILLED, Swap, centered, images, vit, vit_contranorm
from timm.layers import Attention
from torch import Tensor

import oversmoothing as osm
from oversmoothing.adapters.names import known
from oversmoothing.aggregators.base import Context
from oversmoothing.lab.backbones import vit_attention


def split(attention: Attention, x: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√d) (B, heads, N, N) and V (B, heads, N, d), from the weights."""
    w, b, heads = attention.qkv.weight, attention.qkv.bias, attention.num_heads
    q, k, v = ((x @ w.T + b).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)).unbind(0)
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1), v


@torch.no_grad()
def test_prefix_tokens_can_be_left_out_of_the_mean() -> None:
    attention = (
        vit(centered(-1.0, prefix_in_mean=False), name=DISTILLED).double().network.blocks[0].attn
    )
    x = torch.randn(1, 11, 192, dtype=torch.float64)
    m, v = split(attention, x)
    joined = (m @ v - v[:, :, 2:].mean(-2, keepdim=True)).transpose(1, 2).flatten(2)
    expected = joined @ attention.proj.weight.T + attention.proj.bias
    assert torch.allclose(attention(x), expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_after_acts_on_the_output_of_the_branch() -> None:
    x = torch.randn(2, 10, 192)
    plain, attention = (vit(*a).network.blocks[0].attn for a in ([], [vit_contranorm()]))
    expected = attention.after[0](plain(x), Context(prefix=1))
    assert torch.allclose(attention(x), expected, atol=1e-6)


@pytest.mark.parametrize("method", ["neutreno", "value_residual"])
def test_methods_that_read_the_first_block_are_those_of_apply(method: str) -> None:
    ours, other = vit(known()[method]).double(), vit().double().network
    other.load_state_dict(ours.network.state_dict(), strict=False)
    osm.apply(other, method)
    x = images(2, 3, 64, 64).double()
    tokens = []
    other.norm.register_forward_hook(lambda *call: tokens.append(call[-1]))
    other((x - ours.mean) / ours.std)
    torch.testing.assert_close(ours(x)[0], tokens[0], rtol=0, atol=1e-12)
    for found in (ours(x)[0].square().sum(), ours.layers(x)[-1].square().sum()):
        found.backward()
        assert ours.network.blocks[0].attn.qkv.weight.grad.isfinite().all()
    assert len(list(ours.attention_maps(x))) == ours.depth


@torch.no_grad()
def test_instead_replaces_the_attention() -> None:
    model, x = vit(Swap, blocks=[5]), torch.randn(2, 10, 192)
    attention = model.network.blocks[5].attn
    assert {name for name, _ in attention.named_parameters()} == {
        "instead.0.linear.weight",
        "instead.0.linear.bias",
    }
    assert torch.equal(attention(x), attention.instead[0].linear(x))


def tokens_and_gradient(factories: list, autocast: bool) -> tuple[Tensor, Tensor]:
    network = vit(*factories)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = network(images(2, 3, 64, 64))[0].float()
    (out * out.detach().roll(1, dims=-1)).sum().backward()
    return out.detach(), network.network.blocks[0].attn.qkv.weight.grad


@pytest.mark.parametrize("gamma", [None, -1.0])
def test_attention_in_bf16_is_as_exact_as_the_fused_kernel(
    gamma: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories = [] if gamma is None else [centered(gamma)]
    exact = tokens_and_gradient(factories, autocast=False)
    calls = Mock(wraps=vit_attention._attention)
    monkeypatch.setattr(vit_attention, "_attention", calls)
    plain = tokens_and_gradient(factories, autocast=True)
    assert calls.call_count == 12
    monkeypatch.setattr(vit_attention, "in_bf16_on_cpu", lambda device: False)
    fused = tokens_and_gradient(factories, autocast=True)
    assert calls.call_count == 12
    for ours, theirs, whole in zip(plain, fused, exact):
        assert 0 < (ours - whole).norm() < 1.5 * (theirs - whole).norm() < 0.1 * whole.norm()


@torch.no_grad()
def test_without_gradients_attention_in_bf16_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vit_attention, "_attention", Mock(side_effect=AssertionError))
    with torch.autocast("cpu", torch.bfloat16):
        vit()(images(1, 3, 64, 64))
