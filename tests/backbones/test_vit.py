"""The vision transformer against timm's own: sizes, blocks, gradients, streams."""

import pytest
import timm
import torch
from small_vit import DISTILLED, TINY, centered, images, vit
from torch import nn

from oversmoothing.aggregators.base import Context, advance
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.vit import PostNormBlock
from oversmoothing.lab.launch.config import compose_config

CASES = [(TINY, size) for size in [(224, 224), (64, 96), (16, 16)]]
CASES += [(DISTILLED, (64, 80)), ("vit_tiny_patch16_224", (64, 64))]
CASES += [("deit3_small_patch16_224.fb_in22k_ft_in1k", (48, 64))]


@pytest.mark.parametrize(("name", "size"), CASES)
@torch.no_grad()
def test_without_aggregators_every_bit_is_timms(name: str, size: tuple[int, int]) -> None:
    model = vit(NoAggregator, NoAggregator, name=name)
    reference = timm.create_model(name, num_classes=0, dynamic_img_size=True).eval()
    reference.load_state_dict(model.network.state_dict())
    x = images(2, 3, *size)
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    tokens, taken = model(x)
    assert torch.equal(tokens, reference.forward_features((x - mean) / std))
    assert tokens.shape == (2, model.prefix + size[0] * size[1] // 256, model.dim) and not taken


def test_only_the_chosen_blocks_change() -> None:
    choices = {"all": range(12), "last-half": range(6, 12), "last-3": [9, 10, 11]}
    for blocks, expected in [*choices.items(), ([0, -1], [0, 11])]:
        model = vit(centered(-1.0), blocks=blocks)
        changed = [hasattr(block.attn, "inside") for block in model.network.blocks]
        assert [i for i, yes in enumerate(changed) if yes] == list(expected)
    attentions = [block.attn for block in vit(centered(-1.0)).network.blocks]
    assert len({id(attention.inside[0]) for attention in attentions}) == 12


@torch.no_grad()
def test_warm_ups_are_told_the_step() -> None:
    model, x = vit(centered(-1.0, warmup=4)), images(1, 3, 32, 32)
    for step, gamma in ((0, 0.0), (2, -0.5), (9, -1.0)):
        advance(model, step)
        assert torch.allclose(model(x)[0], vit(centered(gamma))(x)[0], atol=1e-5)


@torch.no_grad()
def test_streams_are_those_after_the_blocks_and_raw() -> None:
    model, x = vit(centered(-1.0)), images(2, 3, 32, 48)
    layers, (tokens, taken) = model.layers(x), model(x, take=(9, -3, 0))
    assert len(layers) == model.depth == 12
    assert taken.keys() == {0, 9, -3} and taken[9] is taken[-3]
    assert torch.equal(taken[9], layers[9]) and torch.equal(taken[0], layers[0])
    assert torch.equal(tokens, model.network.norm(layers[-1]))
    block = model.network.blocks[10]
    assert torch.equal(block(layers[9]), layers[10])
    with pytest.raises(InputError, match="take: expected blocks from -12 to 11, got 12"):
        model(x, take=(12,))


def test_a_map_holds_every_patch_in_its_place() -> None:
    model = vit(name=DISTILLED)
    patches = torch.arange(6.0).view(1, 6, 1).expand(2, 6, 5)
    tokens = torch.cat([torch.full((2, 2, 5), -1.0), patches], dim=1)
    grid = model.to_map(tokens, 32, 48)
    assert grid.shape == (2, 5, 2, 3)
    assert torch.equal(grid[1, 4], torch.arange(6.0).view(2, 3))


def torchs(block: PostNormBlock) -> nn.TransformerEncoderLayer:
    """torch's layer, whose norms come last by default, with the weights of a block."""
    sizes = (block.attn.qkv.in_features, block.attn.num_heads, block.mlp.fc1.out_features)
    options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "dtype": torch.float64}
    layer = nn.TransformerEncoderLayer(*sizes, layer_norm_eps=block.norm1.eps, **options).eval()
    pairs = {"self_attn.in_proj_": "attn.qkv.", "self_attn.out_proj.": "attn.proj."}
    pairs |= {
        "linear1.": "mlp.fc1.",
        "linear2.": "mlp.fc2.",
        "norm1.": "norm1.",
        "norm2.": "norm2.",
    }
    own = block.state_dict()
    parts = ("weight", "bias")
    layer.load_state_dict({a + x: own[b + x] for a, b in pairs.items() for x in parts})
    return layer


@torch.no_grad()
def test_post_norm_blocks_are_torchs_encoder_layers() -> None:
    model, x = vit(post_norm=True, depth=3).double(), images(2, 3, 32, 48, dtype=torch.float64)
    for parameter in model.network.blocks.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    layers, maps = model.layers(x), list(model.attention_maps(x))
    assert torch.equal(model(x)[0], layers[-1])
    for i, (block, into) in enumerate(zip(model.network.blocks[1:], layers)):
        layer = torchs(block)
        assert torch.allclose(layer(into), layers[i + 1], rtol=0, atol=1e-12)
        expected = layer.self_attn(into, into, into, average_attn_weights=False)[1]
        assert torch.allclose(expected, maps[i + 1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_after_the_sum_is_between_the_sum_and_its_norm() -> None:
    """Branches of 0 leave x + 0, of which PairNorm and then the norms see all tokens at once."""
    model = vit(PairNorm, post_norm=True, after="sum", depth=1, layer_scale=1e-30)
    plain = vit(post_norm=True, depth=1, layer_scale=1e-30)
    x = images(2, 3, 32, 32)
    tokens, block = plain.embed((x - plain.mean) / plain.std), plain.network.blocks[0]
    expected = block.norm2(block.norm1(PairNorm()(tokens, Context(prefix=1))))
    assert torch.allclose(model(x)[0], expected, atol=1e-5)
    assert not torch.allclose(plain(x)[0], expected, atol=1e-2)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("post_norm", {"post_norm": True, "weights": "timm"}),
        ("after", {"post_norm": True, "after": "norm2"}),
        ("after", {"after": "sum"}),
        ("layer_scale", {"layer_scale": 0.0}),
    ],
)
def test_post_norm_and_its_place_are_checked(key: str, options: dict) -> None:
    with pytest.raises(InputError, match=rf"^backbone\.{key}: "):
        vit(**{"depth": 1, **options})


@pytest.mark.parametrize("option", ["deit_ti", "deit_s", "deit_b", "vit_b", "deit3_s_21k"])
def test_the_configs_name_weights_that_timm_publishes(option: str) -> None:
    content = compose_config([f"backbone={option}"]).backbone
    assert timm.models.is_model_pretrained(content["name"])
    assert content["weights"] == "timm" and "." in content["name"]
