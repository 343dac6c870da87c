"""What ``apply`` and the models with aggregators refuse: each case names its argument."""

import re
from functools import partial

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import torchvision
import transformers as hf
from applied_convolutions import network
from applied_models import (
    PADDED,
    WORDS,
    Push,
    Scale,
    bert,
    encoder,
    everything,
    gpt2,
    swin,
    vit,
    windows,
)
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.errors import InputError

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
IMAGE = torch.rand(1, 3, 32, 32)


def stack() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)))


def with_bias() -> nn.Module:
    model = encoder()
    for layer in model.layers:
        layer.self_attn = nn.MultiheadAttention(16, 2, add_bias_kv=True, batch_first=True)
    return model


def without_fused() -> nn.Module:
    model = vit()
    model.blocks[0].attn.fused_attn = False
    return model


def torchvisions() -> nn.Module:
    return torchvision.models.VisionTransformer(32, 16, 2, 2, 16, 16)


def without_proj() -> nn.Module:
    """As timm's Gemma 4, whose projection has another name."""
    model = vit()
    del model.blocks[0].attn.proj
    return model


def with_shared_norm() -> nn.Module:
    model = vit()
    model.blocks[1].norm1 = model.blocks[0].norm1
    return osm.apply(model, "contranorm", where="norms", blocks=[0])


def patched() -> nn.Module:
    """A hook of accelerate would bypass the aggregators, without a word."""
    model = vit()
    model.blocks[1].attn.forward = model.blocks[1].attn.forward
    return model


def jamba() -> nn.Module:
    return hf.JambaModel(hf.JambaConfig(
        **SIZES, intermediate_size=32, num_key_value_heads=1, vocab_size=9, num_experts=1,
        num_experts_per_tok=1, attn_layer_period=2, attn_layer_offset=1,
        use_mamba_kernels=False))  # fmt: skip


def group_vit() -> nn.Module:
    config = hf.GroupViTVisionConfig(
        hidden_size=16, intermediate_size=32, depths=[1, 1, 1], num_attention_heads=2,
        image_size=32, patch_size=8, num_group_tokens=[4, 2, 0],
        num_output_groups=[4, 2, 0])  # fmt: skip
    return hf.GroupViTVisionModel(config)


def sparse() -> nn.Module:
    """Its attention calls no attention function; that of the decoder in the same file does."""
    config = hf.BigBirdPegasusConfig(
        d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=16, vocab_size=9,
        decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16)  # fmt: skip
    return hf.BigBirdPegasusModel(config).encoder


def headless_config() -> nn.Module:
    """Only the attention itself knows its heads."""
    model = bert()
    for layer in model.encoder.layer:
        layer.attention.self.config = hf.PretrainedConfig()
        layer.attention.self.config._attn_implementation = "sdpa"
        del layer.attention.self.attention_head_size
    return model


def xlnet() -> nn.Module:
    config = hf.XLNetConfig(d_model=16, n_layer=2, n_head=2, d_inner=16, vocab_size=9)
    return hf.XLNetModel(config)


def streams() -> nn.Module:
    """Before the norms of its hyper-connections, the streams are side by side."""
    config = hf.DeepseekV4Config(
        **SIZES, intermediate_size=16, head_dim=8, num_key_value_heads=1, vocab_size=9,
        q_lora_rank=8, o_lora_rank=8, o_groups=1, n_routed_experts=2, num_experts_per_tok=1,
        moe_intermediate_size=8)  # fmt: skip
    return hf.DeepseekV4Model(config)


def sinks() -> nn.Module:
    """The rows of their attention sum to less than 1."""
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2}
    return hf.GptOssModel(hf.GptOssConfig(**small, **heads, vocab_size=9))


def convolutions(conv=lambda: pyg.GCNConv(4, 4)) -> nn.Module:
    return nn.ModuleList(conv() for _ in range(3))


def distilbert() -> nn.Module:
    return hf.DistilBertModel(hf.DistilBertConfig(dim=16, n_layers=2, n_heads=2, vocab_size=50))


headless = partial(vit, class_token=False, global_pool="avg")
WRONG: dict[str, tuple] = {  # why -> model, aggregator, options, the argument that is named
    "unknown blocks": (stack, "contranorm", {}, "model"),
    "unknown mixing": (stack, "centered", {}, "aggregator"),
    "branches that are not known": (torchvisions, "rezero", {}, "where"),
    "a token of its own": (with_bias, "centered", {}, "model"),
    "after, in windows": (swin, "pairnorm", {}, "model"),
    "channels as tokens": (
        partial(timm.create_model, "xcit_nano_12_p8_224", depth=2), "centered", {}, "model"),
    "unknown name": (vit, "centred", {}, "aggregator"),
    "preset": (vit, "contranorm_vit", {}, "aggregator"),
    "none": (vit, "none", {}, "aggregator"),
    "no aggregator": (vit, nn.LayerNorm, {}, "aggregator"),
    "instance": (vit, osm.LayerNorm(32), {}, "aggregator"),
    "number": (vit, 3, {}, "aggregator"),
    "twice": (vit, ["layernorm", "pairnorm", partial(osm.PairNorm)], {}, "aggregator"),
    "twice with options": (convolutions, ["residual"] * 2, {"scale": 0.5}, "aggregator"),
    "base class": (vit, osm.Aggregator, {}, "aggregator"),
    "another module is built": (vit, lambda dim: nn.LayerNorm(dim), {}, "aggregator"),
    "nothing is built": (convolutions, lambda: None, {}, "aggregator"),
    "option": (vit, "contranorm", {"scal": 1}, "scal"),
    "option of a partial": (vit, ["centered", partial(osm.ContraNorm, scal=1)], {}, "scal"),
    "not finite": (vit, "centered", {"gamma": float("nan")}, "aggregator.gamma"),
    "text": (vit, "centered", {"gamma": "-1"}, "aggregator.gamma"),
    "no place": (vit, "pairnorm", {"where": "norm3"}, "where"),
    "no choice": (vit, "centered", {"where": "norms"}, "where"),
    "empty pattern": (vit, "pairnorm", {"where": ""}, "where"),
    "no match": (encoder, "pairnorm", {"where": "layer.*"}, "where"),
    "list": (encoder, "pairnorm", {"where": "layers"}, "where"),
    "never called": (encoder, "pairnorm", {"where": "layers.*.self_attn.out_proj"}, "where"),
    "tokens first": (partial(encoder, batch_first=False), Push, {"where": "layers.*"}, "where"),
    "empty": (
        lambda: nn.Sequential(nn.Sequential(), nn.Linear(4, 4)), Push, {"where": "0"}, "where"),
    "block": (vit, "centered", {"blocks": [3]}, "blocks"),
    "true": (vit, "centered", {"blocks": [True]}, "blocks"),
    "empty list": (vit, "centered", {"blocks": []}, "blocks"),
    "prefix of words": (distilbert, "centered", {"prefix_in_mean": False}, "prefix_in_mean"),
    "prefix of causal words": (gpt2, "centered", {"prefix_in_mean": False}, "prefix_in_mean"),
    "prefix of nodes": (convolutions, "centered", {"prefix_in_mean": False}, "prefix_in_mean"),
    "no prefix": (headless, "centered", {"prefix_in_mean": False}, "prefix_in_mean"),
    "no blocks": (vit, "centered", {"blocks": None}, "blocks"),
    "first": (vit, "centered", {"blocks": "first"}, "blocks"),
    "word": (bert, "centered", {"blocks": "last-3"}, "blocks"),
    "blocks and pattern": (
        convolutions, "contranorm", {"where": "[01]", "blocks": [0]}, "blocks"),
    "causal": (vit, "pairnorm", {"causal": "no"}, "causal"),
    "future": (gpt2, "contranorm", {}, "aggregator"),
    "jit": (lambda: torch.jit.script(nn.Linear(3, 3)), "pairnorm", {}, "model"),
    "single layer": (lambda: nn.Linear(3, 3), "pairnorm", {}, "model"),
    "no attention": (partial(timm.create_model, "resnet18"), "centered", {}, "model"),
    "no projection": (without_proj, "pairnorm", {}, "model"),
    "not fused": (without_fused, "centered", {}, "model"),
    "patched": (patched, "centered", {}, "model"),
    "no attention in a block": (jamba, "centered", {}, "model"),
    "no attention function": (sparse, "centered", {}, "model"),
    "unknown channels": (headless_config, "centered", {}, "model"),
    "tokens first in text": (xlnet, "pairnorm", {"causal": False}, "model"),
    "a pattern, tokens first": (
        xlnet, "pairnorm", {"causal": False, "where": "layer.*.ff"}, "where"),
    "no norm": (group_vit, "layernorm", {}, "where"),
    "a product, in windows": (windows, Scale, {}, "aggregator"),
    "branches with norms, in windows": (partial(windows, "Swinv2"), "rezero", {}, "where"),
    "a list of layers": (lambda: bert().encoder.layer, "pairnorm", {}, "model"),
    "sinks": (sinks, "centered", {}, "model"),
    "instead in text": (bert, "em", {}, "aggregator"),
    "place in text": (bert, "pairnorm", {"where": "fnn"}, "where"),
    "instead in graphs": (convolutions, "external", {}, "aggregator"),
    "place in graphs": (convolutions, "pairnorm", {"where": "branch"}, "where"),
    "channels": (partial(convolutions, lambda: pyg.APPNP(3, 0.1)), "contranorm", {}, "aggregator"),
    "a warm-up in a product that is kept": (
        partial(convolutions, lambda: pyg.SGConv(4, 4, cached=True)), "centered", {"warmup": 9},
        "model"),
    "dropped nodes in a product that is kept": (
        partial(convolutions, lambda: pyg.SSGConv(4, 4, 0.1, cached=True)), "drop_node", {},
        "model"),
    "channels inside": (
        partial(convolutions, lambda: pyg.NNConv(4, 4, nn.Linear(2, 16))), Scale, {}, "aggregator"),
    "layout": (vit, "pairnorm", {"where": "blocks.*.mlp", "layout": "BWHC"}, "layout"),
    "known layout": (vit, "pairnorm", {"layout": "BHWC"}, "layout"),
    "taken": (lambda: osm.apply(vit(), "centered", blocks=[1]), "pairnorm", {}, "blocks"),
    "taken norm": (
        with_shared_norm, "contranorm", {"where": "norms", "blocks": [1]}, "blocks"),
}  # fmt: skip


@pytest.mark.parametrize("why", WRONG)
def test_bad_input_leaves_the_model_as_it_was(why: str) -> None:
    build, aggregator, options, key = WRONG[why]
    model = build()
    before = everything(model)
    with pytest.raises(InputError, match=f"^{key}\\b") as refused:
        osm.apply(model, aggregator, **options)
    assert "\n" not in str(refused.value) and everything(model) == before


def opaque() -> nn.Module:
    """A model whose attention function is chosen after the method, and has masks of its own kind,
    as flex attention."""
    hf.AttentionInterface.register("opaque", lambda *_, **__: None)
    hf.AttentionMaskInterface.register("opaque", lambda *_, **__: object())
    model = osm.apply(bert(), "centered")
    model.set_attn_implementation("opaque")
    return model


def in_encoder(method: str) -> nn.Module:
    """A model with a method in its encoder, which gets no mask (B, N)."""
    model = bert().eval()
    osm.apply(model.encoder, method)
    return model


def attend() -> partial:
    inside = osm.apply(bert(), "centered").encoder.layer[0].attention.self.inside
    return partial(inside.attend, nn.Identity())


def batch_of(nodes: int) -> Tensor:
    return torch.zeros(nodes, dtype=torch.long)


EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
SOME = torch.arange(17).expand(17, -1) < 16  # a patch is padding
QKV = [torch.randn(1, 2, 3, 8)] * 3
CALLS: dict[str, tuple] = {  # why -> model with aggregators, its inputs, the argument
    "feature map": (
        lambda: osm.apply(timm.create_model("resnet18"), Push, where="layer*.0.bn1"),
        (IMAGE,), "where"),
    "tokens in a layout": (
        lambda: osm.apply(vit(), "pairnorm", where="blocks.*.mlp", layout="BHWC"),
        (IMAGE,), "where"),
    "other nodes": (
        lambda: network(lambda: pyg.GCNConv(4, 4), osm.PairNorm),
        (torch.randn(3, 4).double(), EDGES, batch_of(9)), "batch"),
    "bipartite": (
        lambda: network(lambda: pyg.SAGEConv((4, 4), 4), osm.Centered).layers[0],
        ((torch.randn(7, 4).double(), torch.randn(5, 4).double()), EDGES), "model"),
    "bipartite, before": (
        lambda: network(lambda: pyg.SAGEConv(4, 4), osm.DropNode).layers[0],
        ((torch.randn(7, 4).double(), torch.randn(5, 4).double()), EDGES), "model"),
    "masks that cannot be read": (
        opaque, (torch.ones(1, 3, dtype=torch.long),), "model"),
    "padded windows of transformers": (
        lambda: osm.apply(windows("Swinv2"), "centered"), (torch.rand(1, 3, 20, 20),), "model"),
    "padded windows": (
        lambda: osm.apply(swin().layers[0].blocks, "centered", blocks=[0])[0],
        (torch.rand(1, 3, 4, 16),), "model"),
    "causal without a mask": (
        lambda: partial(osm.apply(encoder(), "centered").layers[0], is_causal=True),
        (torch.randn(2, 3, 16),), "attn_mask"),
    "a mask that a part of a model gets": (
        partial(in_encoder, "pairnorm"), (WORDS, PADDED), "attention_mask"),
    "a mask, instead of attention": (
        lambda: partial(osm.apply(vit(), "external"), attn_mask=torch.ones(17, 17).bool()),
        (IMAGE,), "attn_mask"),
    "a mask, after attention": (
        lambda: partial(osm.apply(vit(), ["layernorm", "pairnorm"]), is_causal=True),
        (IMAGE,), "is_causal"),
    **{f"a mask, at {where}": (
        lambda where=where: partial(
            osm.apply(vit(), "pairnorm", where=where).forward_features, attn_mask=SOME),
        (IMAGE,), "attn_mask") for where in (
        "branch", "norm2", "norms", "blocks.*", "blocks.*.attn", "blocks.*.mlp.fc2")},
    "keys are selected": (
        lambda: partial(attend(), indices=torch.zeros(1, 3, 2)), (*QKV, None), "model"),
    "sinks of a call": (
        lambda: partial(attend(), sinks=torch.zeros(1, 2, 3, 1)), (*QKV, None), "model"),
    "streams": (
        lambda: osm.apply(streams(), "nodenorm"), (torch.ones(1, 3, dtype=torch.long),), "where"),
}  # fmt: skip


@pytest.mark.parametrize("why", CALLS)
def test_calls_that_would_give_wrong_numbers_are_refused(why: str) -> None:
    build, inputs, key = CALLS[why]
    with pytest.raises(InputError, match=f"^{key}: "):
        build()(*inputs)


def test_a_refusal_names_a_place_where_the_method_acts() -> None:
    with pytest.raises(InputError) as error:
        osm.apply(torchvisions(), "rezero")
    [where] = re.findall("where='(.*)'", str(error.value))
    model = osm.apply(torchvisions(), "rezero", where=where)
    assert isinstance(model.encoder.layers[1].self_attention.after[0], osm.ReZero)


def test_numbered_layers_of_torchvision_are_one_stack() -> None:
    """Their names end in _0 and _1."""
    layers = osm.apply(torchvisions(), "neutreno").encoder.layers
    assert [layer.self_attention.inside.first[2] for layer in layers] == [1, 2]


def test_a_pattern_does_not_match_the_model_itself() -> None:
    model = osm.apply(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "meannorm", where="*")
    assert [hasattr(module, "after") for module in (model, *model[:2])] == [False, True, True]


def test_the_name_of_a_paper_leads_to_its_method() -> None:
    names = {"GCNII": "initial_residual", "gcnii": "initial_residual", "JKNet": "jumping",
             "Jumping Knowledge": "jumping", "ResFormer": "value_residual"}  # fmt: skip
    for name, method in names.items():
        with pytest.raises(InputError, match=f"'{method}'"):
            osm.apply(vit(), name)


def test_nothing_is_removed_while_a_forward_is_patched() -> None:
    model = osm.apply(vit(), "centered")
    model.blocks[1].attn.forward = model.blocks[1].attn.forward
    before = everything(model)
    with pytest.raises(InputError, match="^model: "):
        osm.remove(model)
    assert everything(model) == before
    for call in (osm.remove, osm.recipe, osm.restore):
        with pytest.raises(InputError, match="^model: "):
            call("encoder")


def test_a_module_whose_name_is_almost_that_of_a_place_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="'norms' is a place"):
        model = osm.apply(vit(), "pairnorm", where="norm")
    assert isinstance(model.norm.after[0], osm.PairNorm)
