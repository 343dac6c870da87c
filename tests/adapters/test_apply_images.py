"""Aggregators in timm's transformers and, by a pattern of names, in models of any kind."""

from collections.abc import Callable
from functools import partial

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from applied_models import encoder
from small_vit import Swap, images, vit
from timm.models.eva import EvaAttention
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.adapters.site import placed_in, sites_of
from oversmoothing.errors import InputError

TINY = "deit_tiny_patch16_224"
EXACT = {"rtol": 0, "atol": 1e-10}
centered = partial(osm.Centered, gamma=-1.0)
contranorm = partial(osm.ContraNorm, scale=0.2, identity=False)


def test_blocks_that_share_a_norm_have_one_site_there() -> None:
    model = timm.create_model(TINY, depth=2, img_size=32).eval()
    model.blocks[1].norm1 = shared = model.blocks[0].norm1
    osm.apply(model, contranorm, where="norms")
    assert len(shared._forward_pre_hooks) == 1 and len(sites_of(placed_in(model))) == 4
    seen = torch.arange(5) < 4
    for block in model.blocks:
        with pytest.raises(osm.InputError, match="^attn_mask: "):
            block(torch.randn(1, 5, 192), attn_mask=seen.expand(5, 5))
    osm.remove(model)
    assert not shared._forward_pre_hooks and model(images(1, 3, 32, 32)).isfinite().all()


def applied(
    *aggregators: object, name: str = TINY, sizes: dict | None = None, **options
) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"depth": 3, "img_size": 32, **(sizes or {})}
    model = timm.create_model(name, num_classes=0, **sizes).eval()
    return osm.apply(model, list(aggregators), **options)


@pytest.mark.parametrize("after", ["branch", "norm2", "norms"])
@torch.no_grad()
def test_the_repos_vit_is_an_applied_one(after: str) -> None:
    """Equal bit by bit, in the last two of three blocks."""
    aggregators = [centered, partial(contranorm, layernorm=after != "branch")]
    own = vit(*aggregators, depth=3, image_size=32, after=after, blocks="last-2")
    model = applied(centered, contranorm, where=after, blocks="last-2")
    state = own.network.state_dict()
    names = {key: key.replace(".aggregators.0.norm", "") for key in state}
    model.load_state_dict({names[key]: value for key, value in state.items()})
    x = images(2, 3, 32, 32)
    assert torch.equal(model.forward_features((x - own.mean) / own.std), own(x)[0])


@torch.no_grad()
def test_centered_attention_is_the_explicit_matrix() -> None:
    attention = applied(centered).double().blocks[1].attn
    x = torch.randn(2, 9, 192, dtype=torch.float64)
    q, k, v = attention.qkv(x).unflatten(-1, (3, 3, 64)).permute(2, 0, 3, 1, 4)
    matrix = (q @ k.mT / 8).softmax(-1) - torch.ones(9, 9, dtype=x.dtype) / 9
    expected = attention.proj((matrix @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x), expected, **EXACT)


@torch.no_grad()
def test_masks_of_the_attention_are_respected() -> None:
    """In a causal pass the mean runs over the patches before; hidden ones are in no mean."""
    model = applied(centered, sizes={"img_size": 64}).double()
    attention, x = model.blocks[0].attn, torch.randn(2, 9, 192, dtype=torch.float64)
    causal = attention(x, is_causal=True)
    torch.testing.assert_close(causal[:, :4], attention(x[:, :4], is_causal=True), **EXACT)
    seen = torch.arange(9) < 6
    for mask in (seen, torch.zeros(9).double().masked_fill(~seen, -torch.inf)):
        found = attention(x, attn_mask=mask.expand(1, 1, 9, 9))
        torch.testing.assert_close(found[:, :6], attention(x[:, :6]), **EXACT)


def test_dropout_stays() -> None:
    attention = applied(centered, sizes={"attn_drop_rate": 0.5}).train().blocks[0].attn
    x = torch.randn(2, 9, 192)
    assert not torch.equal(attention(x), attention(x))


@torch.no_grad()
def test_instead_of_attention() -> None:
    model = applied(Swap, blocks=[1])
    x = torch.randn(2, 5, 192)
    assert torch.equal(model.blocks[1].attn(x), model.blocks[1].attn.instead[0](x, osm.Context()))
    osm.remove(model)
    assert type(model.blocks[1].attn) is timm.layers.Attention


def test_other_attention_of_timm() -> None:
    """Rotary positions and separate projections stay."""
    sizes = {"embed_dim": 32, "num_heads": 2}
    model = applied(centered, name="eva02_tiny_patch14_224", sizes=sizes | {"img_size": 28})
    assert isinstance(model.blocks[0].attn, EvaAttention)
    assert model(images(1, 3, 28, 28)).isfinite().all()
    sizes |= {"img_size": 32, "use_rel_pos_bias": True}
    attention = applied(centered, name="beit_base_patch16_224", sizes=sizes).blocks[0].attn
    nn.init.normal_(attention.relative_position_bias_table)
    x = torch.randn(1, 5, 32)
    values = (x @ attention.qkv.weight[64:].T).mean(dim=1) + attention.v_bias
    shift = attention(x) - attention.plain.forward(attention, x)
    expected = (-values @ attention.proj.weight.T)[:, None]
    torch.testing.assert_close(shift, expected.expand_as(shift))


class Shift(osm.After):
    """Removes the mean token."""

    def forward(self, x: Tensor, context: osm.Context) -> Tensor:
        return x - x.mean(dim=-2, keepdim=True)


@torch.no_grad()
def test_a_pattern_of_names_in_a_model_of_any_kind() -> None:
    model, x = encoder().eval(), torch.randn(2, 7, 16)
    plain = model(x)
    osm.apply(model, Shift, where="layers.*.linear2")
    y = x
    for layer in encoder().eval().layers:
        y = layer.norm1(y + layer.self_attn(y, y, y)[0])
        branch = layer.linear2(layer.linear1(y).relu())
        y = layer.norm2(y + branch - branch.mean(dim=1, keepdim=True))
    torch.testing.assert_close(model(x), y, rtol=0, atol=1e-5)
    assert torch.equal(osm.remove(model)(x), plain)
    osm.apply(model, Shift, where="layers.*")  # not the modules in these layers
    hooked = [name for name, module in model.named_modules() if module._forward_hooks]
    assert hooked == ["layers.0", "layers.1"]
    osm.remove(model)
    stack = nn.Sequential(nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 16))
    assert osm.apply(stack, Shift, where="0")(x).shape == x.shape and len(stack[0]) == 2


B, C, H, W = 2, 6, 3, 4
MAPS: dict[str, tuple[Callable[[], nn.Module], Tensor, Callable[[Tensor], Tensor]]] = {
    "NBC": (lambda: nn.Linear(C, C), torch.randn(H, B, C), lambda x: x.transpose(0, 1)),
    "BCN": (lambda: nn.Conv1d(C, C, 1), torch.randn(B, C, H), lambda x: x.mT),
    "BCHW": (lambda: nn.Conv2d(C, C, 1), torch.randn(B, C, H, W), lambda x: x.flatten(2).mT),
    "BHWC": (lambda: nn.Linear(C, C), torch.randn(B, H, W, C), lambda x: x.flatten(1, 2)),
}


@pytest.mark.parametrize("method", ["contranorm", "pairnorm", "layernorm"])
@pytest.mark.parametrize("layout", MAPS)
def test_a_layout_changes_the_axes_only(layout: str, method: str) -> None:
    build, x, tokens = MAPS[layout]
    model = nn.Sequential(build(), nn.Identity())
    plain = model(x)
    osm.apply(model, method, where="0", layout=layout)
    out = model(x)
    assert out.shape == plain.shape
    expected = model[0].after[0](tokens(plain))
    torch.testing.assert_close(tokens(out), expected, rtol=0, atol=1e-6)
    out.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert torch.equal(osm.remove(model)(x), plain)


@pytest.mark.parametrize(
    ("name", "where", "layout"),
    [("swin_tiny_patch4_window7_224", "layers.*.blocks.*", "BHWC"), ("resnet18", "layer4", "BCHW")],
)
@torch.no_grad()
def test_models_with_feature_maps(name: str, where: str, layout: str) -> None:
    model = timm.create_model(name).eval()
    images = torch.rand(1, 3, 224, 224)
    plain = model(images)
    with pytest.raises(osm.InputError, match="^where: .*layout="):
        osm.apply(model, "pairnorm", where=where)(images)
    osm.remove(model)
    osm.apply(model, "contranorm", where=where, layout=layout)
    assert not torch.allclose(model(images), plain)
    assert torch.equal(osm.remove(model)(images), plain)


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def squeezebert() -> nn.Module:
    config = hf.SqueezeBertConfig(
        **SIZES, intermediate_size=32, embedding_size=16, vocab_size=9, q_groups=1, k_groups=1,
        v_groups=1, post_attention_groups=1, intermediate_groups=1, output_groups=1)  # fmt: skip
    return hf.SqueezeBertModel(config).eval()


@pytest.mark.parametrize("method", ["layernorm", "pairnorm"])
def test_channels_before_tokens_are_refused(method: str) -> None:
    model = osm.apply(squeezebert(), method)
    with pytest.raises(InputError, match="^where: .*layout=BCN"):
        model(torch.randint(1, 9, (2, 7)))
    osm.apply(osm.remove(model), method, where="encoder.layers.*.output", layout="BCN")
    assert model(torch.randint(1, 9, (2, 7)))[0].isfinite().all()


@pytest.mark.parametrize("where", [None, "convs.*"])
@torch.no_grad()
def test_the_channels_of_a_convolution_are_those_of_its_output(where: str | None) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(pyg.MixHopConv(16, 8, powers=[0, 1]) for _ in range(2))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            for conv in self.convs:
                x = conv(x, edge_index)
            return x

    net, edges = osm.apply(Net(), "layernorm", where=where), torch.tensor([[0, 1], [1, 0]])
    assert net.convs[0].after[0].norm.normalized_shape == (16,)
    assert net(torch.randn(4, 16), edges).shape == (4, 16)
