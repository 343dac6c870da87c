"""The vision transformer against timm's own: sizes, blocks, gradients, streams."""

import pytest
import timm
import torch
from small_vit import DISTILLED, TINY, Scale, Swap, centered, images, vit, vit_contranorm

from oversmoothing.aggregators.base import advance
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.launch.config import compose_config

CASES = [(TINY, size) for size in [(224, 224), (448, 448), (64, 96), (32, 240), (16, 16)]]
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


@torch.no_grad()
def test_patches_keep_no_order_without_position_embedding() -> None:
    model = vit(centered(-1.0), vit_contranorm()).double()
    model.network.pos_embed.zero_()
    x, order = images(1, 3, 16, 96, dtype=torch.float64), torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = x.unflatten(-1, (6, 16))[..., order, :].flatten(-2)
    with_prefix = torch.cat([torch.zeros(1, dtype=torch.long), order + 1])
    assert torch.allclose(model(shuffled)[0], model(x)[0][:, with_prefix], rtol=0, atol=1e-10)


def test_only_the_chosen_blocks_change() -> None:
    choices = {"all": range(12), "last-half": range(6, 12), "last-3": [9, 10, 11]}
    for blocks, expected in [*choices.items(), ([0, -1], [0, 11])]:
        model = vit(centered(-1.0), blocks=blocks)
        changed = [hasattr(block.attn, "inside") for block in model.network.blocks]
        assert [i for i, yes in enumerate(changed) if yes] == list(expected)
    attentions = [block.attn for block in vit(centered(-1.0)).network.blocks]
    assert len({id(attention.inside[0]) for attention in attentions}) == 12


@torch.no_grad()
def test_streams_before_the_chosen_blocks_are_timms() -> None:
    x = images(1, 3, 32, 32)
    plain, late = vit().layers(x), vit(centered(-1.0), blocks="last-2").layers(x)
    assert [torch.equal(a, b) for a, b in zip(plain, late)] == [True] * 10 + [False] * 2


@pytest.mark.parametrize("blocks", ["last-0", "last-13", "first", "last", [], [12], [True], [0.5]])
def test_blocks_that_do_not_exist(blocks: object) -> None:
    with pytest.raises(InputError, match=r"backbone\.blocks: expected .*got"):
        vit(blocks=blocks)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(
    "factories", [[], [centered(-1.0)], [vit_contranorm()], [centered(-1), vit_contranorm()],
                  [Swap], [Swap, vit_contranorm()], [Scale]]
)  # fmt: skip
def test_a_gradient_reaches_every_trainable_parameter(factories: list, frozen: bool) -> None:
    model = vit(*factories, freeze_pos_embed=frozen, blocks="last-3").train()
    tokens, _ = model(images(2, 3, 32, 32))
    (tokens * torch.randn_like(tokens)).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    assert model.network.pos_embed.requires_grad != frozen


def test_parameters_keep_their_names() -> None:
    assert vit().state_dict().keys() <= vit(centered(-1.0), vit_contranorm()).state_dict().keys()


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


@pytest.mark.parametrize("size", [(100, 64), (64, 8), (0, 16)])
def test_sizes_that_are_no_multiple_of_the_patch(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=rf"images of {size[0]} × {size[1]} pixels.*crop"):
        vit()(torch.zeros(1, 3, *size))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "deit_smal_patch16_224"}, "did you mean 'deit_small_patch16_224'"),
        ({"name": "resnet18"}, r"backbone\.name: expected a vision transformer"),
        ({"name": f"{TINY}.fb_in22k"}, r"backbone\.name: .*fb_in22k.*expected one of fb_in1k"),
        ({"name": "vit_base_patch16_siglip_224"}, "not a plain vision transformer"),
        ({"mean": [0.5]}, r"backbone\.mean: expected three numbers"),
        ({"std": [0.2, 0.0, 0.2]}, r"backbone\.std: expected three numbers, above 0"),
    ],
)
def test_what_it_cannot_be_built_from(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        vit(**options)


@pytest.mark.parametrize("option", ["deit_ti", "deit_s", "deit_b", "vit_b", "deit3_s_21k"])
def test_the_configs_name_weights_that_timm_publishes(option: str) -> None:
    content = compose_config([f"backbone={option}"]).backbone
    assert timm.models.is_model_pretrained(content["name"])
    assert content["weights"] == "timm" and "." in content["name"]
