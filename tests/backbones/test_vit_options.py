"""Depth, sizes, stochastic depth, the places of aggregators after, and attention maps."""

from functools import partial
from pathlib import Path

import pytest
import timm
import torch
from small_vit import DISTILLED, TINY, Scale, Swap, centered, images, vit, vit_contranorm
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Context, Instead
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.backbones.vit_attention import InPlaceOfNorm

PLACES = ["branch", "norm2", "norms"]


class Constant(Instead):
    """Depends on no token, so no gradient passes."""

    passes_gradient = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.randn(dim))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.value.expand_as(x)


class Shift(After):
    """Has no LayerNorm; tells the prefix."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return x - x[:, context.prefix :].mean(dim=1, keepdim=True)


@pytest.mark.parametrize("depth", [1, 13])
@torch.no_grad()
def test_of_any_depth_every_bit_is_timms(depth: int) -> None:
    model, x = vit(depth=depth, image_size=32, patch=8), images(2, 3, 32, 32)
    reference = timm.create_model(TINY, num_classes=0, depth=depth, img_size=32, patch_size=8)
    reference.load_state_dict(model.network.state_dict())
    tokens, _ = model(x)
    assert torch.equal(tokens, reference.eval().forward_features((x - model.mean) / model.std))
    assert (model.depth, model.patch, tokens.shape) == (depth, 8, (2, 17, 192))
    assert len(model.layers(images(1, 3, 16, 48))) == depth


def test_weights_fix_the_sizes(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(vit().network.state_dict(), path)
    sizes = {"depth": (12, 24), "image_size": (224, 32), "patch": (16, 8)}
    assert vit(weights=str(path), **{key: own for key, (own, _) in sizes.items()}).depth == 12
    for key, (own, other) in sizes.items():
        with pytest.raises(InputError, match=rf"backbone\.{key}: .* are for {own}, got {other}"):
            vit(weights=str(path), **{key: other})


@torch.no_grad()
def test_drop_path_grows_linearly_and_acts_in_training_alone() -> None:
    model, x = vit(vit_contranorm(), drop_path=0.2, depth=5), images(2, 3, 32, 32)
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in model.network.blocks]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    plain = vit(vit_contranorm(), depth=5)
    assert torch.equal(model(x)[0], plain(x)[0])
    torch.manual_seed(0)
    assert not torch.equal(model.train()(x)[0], plain.train()(x)[0])


def replaced(model: ViT) -> list[str]:
    return [name for name, m in model.network.named_modules() if isinstance(m, InPlaceOfNorm)]


def test_which_norms_are_replaced() -> None:
    count = {after: len(replaced(vit(vit_contranorm(), after=after))) for after in PLACES}
    assert count == {"branch": 0, "norm2": 12, "norms": 2 * 12 + 1}
    late = vit(vit_contranorm(), after="norms", blocks="last-1", depth=3)
    assert replaced(late) == ["blocks.2.norm1", "blocks.2.norm2", "norm"]
    early = vit(vit_contranorm(), after="norms", blocks=[0], depth=3)
    assert replaced(early) == ["blocks.0.norm1", "blocks.0.norm2"]
    assert not replaced(vit(centered(-1.0), NoAggregator, after="norms", depth=3))


@torch.no_grad()
def test_a_norm_without_weights_takes_the_place_of_one_with_weights() -> None:
    model = vit(partial(LayerNorm, affine=False), after="norm2", depth=2)
    tokens = torch.randn(2, 5, model.dim)
    out = model.network.blocks[0].norm2(tokens)
    assert out.mean(dim=-1).abs().max() < 1e-6
    assert model.network.blocks[0].norm2.aggregators[0].norm.eps == 1e-6


@pytest.mark.parametrize("after", ["norm2", "norms"])
@torch.no_grad()
def test_loaded_norms_go_on_in_contranorm(after: str, tmp_path: Path) -> None:
    """At s = 0 the network with loaded weights is the plain one, bit by bit."""
    plain, path, x = vit(), tmp_path / "weights.pth", images(2, 3, 32, 32)
    for module in plain.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.uniform_(0.5, 2)
            module.bias.normal_()
    torch.save(plain.network.state_dict(), path)
    options = {"weights": str(path), "after": after}
    contranorm_0 = partial(ContraNorm, scale=0.0, identity=False, layernorm=True)
    assert torch.equal(vit(contranorm_0, **options)(x)[0], plain(x)[0])
    assert not torch.allclose(vit(vit_contranorm(), **options)(x)[0], plain(x)[0], atol=0.1)


@torch.no_grad()
def test_in_the_place_of_norm2_means_behind_the_residual_sum() -> None:
    """Aggregators act in their order, and those of other sites stay in the attention."""
    model = vit(Shift, vit_contranorm(), centered(-1.0), after="norm2", name=DISTILLED, depth=1)
    block, x = model.network.blocks[0], torch.randn(2, 11, 192)
    contranorm = block.norm2.aggregators[1]
    assert not hasattr(block.attn, "after") and len(block.attn.inside) == 1
    x_1 = x + block.attn(block.norm1(x))
    shifted = x_1 - x_1[:, 2:].mean(dim=1, keepdim=True)
    assert torch.equal(block(x), x_1 + block.mlp(contranorm(shifted, Context())))


@pytest.mark.parametrize("after", PLACES)
@pytest.mark.parametrize(
    "factories",
    [[vit_contranorm()], [Shift], [centered(-1.0), vit_contranorm()], [Scale], [Swap],
     [Swap, vit_contranorm()], [Constant], [Constant, vit_contranorm()]],
)  # fmt: skip
def test_a_gradient_reaches_every_trainable_parameter(factories: list, after: str) -> None:
    options = {"after": after, "blocks": "last-2", "depth": 4, "freeze_pos_embed": False}
    model = vit(*factories, **options).train()
    tokens, _ = model(images(2, 3, 32, 32))
    (tokens * torch.randn_like(tokens)).sum().backward()
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert {".".join(name.split(".")[2:4]) for name in frozen} == (
        {"2.norm1", "3.norm1"} if Constant in factories else set()
    )
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("after", PLACES)
@torch.no_grad()
def test_blocks_know_no_order_of_patches(after: str) -> None:
    model = vit(centered(-1.0), vit_contranorm(), after=after, depth=3).double()
    x = torch.randn(2, 9, 192, dtype=torch.float64)
    order = torch.tensor([0, 4, 2, 8, 1, 3, 7, 6, 5])
    through = nn.Sequential(*model.network.blocks, model.network.norm)
    assert torch.allclose(through(x[:, order]), through(x)[:, order], rtol=0, atol=1e-10)


@torch.no_grad()
def test_attention_maps_are_what_the_blocks_mix_with() -> None:
    model = vit(centered(-0.5), blocks=[1], depth=3).double()
    x = images(2, 3, 32, 48, dtype=torch.float64)
    maps, streams = list(model.attention_maps(x)), model.layers(x)
    for i, (M, before) in enumerate(zip(maps[1:], streams), start=1):
        assert M.shape == (2, 3, 7, 7)
        assert torch.allclose(M.sum(-1), torch.ones((), dtype=M.dtype), atol=1e-12)
        block = model.network.blocks[i]
        y = block.norm1(before)
        v = block.attn.qkv(y)[..., 2 * 192 :].unflatten(-1, (3, 64)).transpose(1, 2)
        mixed = M @ v - (0.5 * v.mean(-2, keepdim=True) if i == 1 else 0)
        expected = block.attn.proj(mixed.transpose(1, 2).flatten(2))
        assert torch.allclose(block.attn(y), expected, rtol=0, atol=1e-10)


def test_blocks_without_attention_have_no_map() -> None:
    maps = list(vit(Swap, blocks=[1], depth=3).attention_maps(images(1, 3, 16, 16)))
    assert [M is None for M in maps] == [False, True, False]
    assert not any(M.requires_grad for M in maps if M is not None)
