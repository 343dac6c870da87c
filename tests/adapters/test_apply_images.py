"""Aggregators in timm's transformers and, by a pattern of names, in models of any kind."""

from functools import partial

import pytest
import timm
import torch
from small_vit import Swap, images, vit
from timm.models.eva import EvaAttention
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.adapters.site import placed_in
from oversmoothing.errors import InputError

TINY = "deit_tiny_patch16_224"
DISTILLED = "deit_tiny_distilled_patch16_224"
EXACT = {"rtol": 0, "atol": 1e-10}
centered = partial(osm.Centered, gamma=-1.0)
contranorm = partial(osm.ContraNorm, scale=0.2, identity=False)


def test_a_patched_forward_is_refused_and_nothing_is_changed() -> None:
    """A hook of accelerate would bypass the aggregators, without a word."""
    model = timm.create_model(TINY, depth=2, img_size=32)
    attention = model.blocks[1].attn
    attention.forward = attention.forward
    with pytest.raises(InputError, match="forward of a Attention is patched.*oversmoothing.apply"):
        osm.apply(model, centered)
    del attention.forward
    assert type(model.blocks[0].attn) is type(attention) is timm.layers.Attention
    osm.apply(model, centered)
    attention.forward = attention.forward
    with pytest.raises(InputError, match="patched.*oversmoothing.remove"):
        osm.remove(model)
    assert len(placed_in(model)) == 2


def test_blocks_that_share_a_norm_have_one_site_there() -> None:
    model = timm.create_model(TINY, depth=2, img_size=32).eval()
    model.blocks[1].norm1 = shared = model.blocks[0].norm1
    osm.apply(model, contranorm, where="norms")
    assert len(shared._forward_pre_hooks) == 1 and len(placed_in(model)) == 4
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


@pytest.mark.parametrize("where", ["norm2", "norms"])
def test_which_norms_are_acted_on(where: str) -> None:
    model = applied(contranorm, where=where, blocks=[0, -1])
    found = [name for name, module in model.named_modules() if hasattr(module, "before")]
    inner = [f"blocks.{i}.{norm}" for i in (0, 2) for norm in ("norm1", "norm2")]
    assert found == (inner + ["norm"] if where == "norms" else inner[1::2])


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
def test_prefix_tokens_can_be_left_out_of_the_mean() -> None:
    shifts = []
    for prefix_in_mean in (True, False):
        aggregator = partial(osm.Centered, gamma=-1.0, prefix_in_mean=prefix_in_mean)
        attention = applied(aggregator, name=DISTILLED).double().blocks[0].attn
        x = torch.randn(1, 6, 192, generator=torch.Generator().manual_seed(0)).double()
        v = attention.qkv(x)[..., 384:]
        plain = timm.layers.Attention.forward(attention, x)
        mean = v[:, 0 if prefix_in_mean else 2 :].mean(dim=1, keepdim=True)
        shifts.append((plain - attention(x), mean @ attention.proj.weight.T))
    for found, expected in shifts:
        torch.testing.assert_close(found, expected.expand_as(found), **EXACT)


@torch.no_grad()
def test_instead_of_attention() -> None:
    model = applied(Swap, blocks=[1])
    x = torch.randn(2, 5, 192)
    assert torch.equal(model.blocks[1].attn(x), model.blocks[1].attn.instead[0](x, osm.Context()))
    osm.remove(model)
    assert type(model.blocks[1].attn) is timm.layers.Attention


def test_other_attention_of_timm() -> None:
    """Rotary positions and separate projections stay; windows and pooling are refused."""
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
    for name, said in (("swin_tiny_patch4_window7_224", "model: .*"), ("resnet18", "no attn")):
        network = timm.create_model(name)
        with pytest.raises(InputError, match=said):
            osm.apply(network, "centered")


def encoder(**options: bool) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, **{"batch_first": True, **options})
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def empty() -> nn.Module:
    return nn.Sequential(nn.Sequential(), nn.Linear(16, 16))


class Shift(osm.After):
    """Removes the mean token."""

    def forward(self, x: Tensor, context: osm.Context) -> Tensor:
        return x - x.mean(dim=-2, keepdim=True)


@torch.no_grad()
def test_a_pattern_of_names_in_a_model_of_any_kind() -> None:
    model, x = encoder(), torch.randn(2, 7, 16)
    plain = model(x)
    osm.apply(model, Shift, where="layers.*.linear2")
    y = x
    for layer in encoder().layers:
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


@pytest.mark.parametrize(
    ("build", "options", "said"),
    [
        (encoder, {"aggregator": "contranorm"}, "TransformerEncoder has no blocks of .*where="),
        (encoder, {"aggregator": "centered"}, "in TransformerEncoder, call it in the model's own"),
        (encoder, {"aggregator": "centered", "where": "layers.*"}, "call it in the model's own"),
        (
            encoder,
            {"aggregator": "pairnorm", "where": "layer.*"},
            "where: .layer.*did you mean .layers",
        ),
        (encoder, {"aggregator": "pairnorm", "where": "layers"}, r"list of modules .* layers\.\*"),
        (empty, {"aggregator": "pairnorm", "where": "0"}, "where: 0 is empty and computes nothing"),
        (lambda: nn.Linear(3, 3), {"aggregator": "pairnorm"}, "no repeated blocks in Linear"),
        (applied, {"aggregator": "centred"}, "no aggregator 'centred'; did you mean 'centered'"),
        (applied, {"aggregator": "contranorm", "scal": 1}, "scal: .* did you mean 'scale'"),
        (applied, {"aggregator": "centered", "gamma": float("nan")}, "gamma: expected a finite"),
        (applied, {"aggregator": "centered", "gamma": "-1"}, "gamma: expected a finite.*got '-1'"),
        (applied, {"aggregator": "none"}, "none changes nothing"),
        (applied, {"aggregator": "pairnorm", "where": "norm3"}, "where: expected one of branch"),
        (applied, {"aggregator": "centered", "where": "norms"}, "where: only aggregators that"),
        (applied, {"aggregator": "centered", "blocks": [3]}, "blocks: expected blocks from -3"),
        (applied, {"aggregator": nn.LayerNorm}, "LayerNorm derives from none of Inside"),
        (applied, {"aggregator": osm.LayerNorm(192)}, "give the class LayerNorm, and options as"),
        *(
            (applied, {"aggregator": "centered", "blocks": w}, "^blocks: ")
            for w in (3, None, ["a"])
        ),
        *((applied, {"aggregator": wrong}, "^aggregator: ") for wrong in (3, None, [None], max)),
        *((applied, {"aggregator": "pairnorm", "where": wrong}, "^where: ") for wrong in ("", 5)),
        (applied, {"aggregator": "pairnorm", "causal": "no"}, "^causal: "),
        (lambda: torch.jit.script(nn.Linear(3, 3)), {"aggregator": "pairnorm"}, "torch.jit"),
    ],
)
def test_bad_input_leaves_the_model_as_it_was(build, options: dict, said: str) -> None:
    model = osm.remove(applied(centered)) if build is applied else build()
    names = [(name, type(module)) for name, module in model.named_modules()]
    with pytest.raises(InputError, match=said) as caught:
        osm.apply(model, **options)
    assert "\n" not in str(caught.value)
    assert [(name, type(module)) for name, module in model.named_modules()] == names
    assert osm.remove(model) is model  # without aggregators, as in a finally
    assert [(name, type(module)) for name, module in model.named_modules()] == names


def test_tokens_elsewhere_are_refused() -> None:
    network = osm.apply(timm.create_model("resnet18"), Shift, where="layer*.0.bn1")
    with pytest.raises(InputError, match=r"expected tokens \(B, N, C\).*got a tensor \(1, 64"):
        network(images(1, 3, 32, 32))
    with pytest.raises(InputError, match="batch_first"):
        osm.apply(encoder(batch_first=False), Shift, where="layers.*")
